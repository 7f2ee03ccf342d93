--- The plugins of the gateway: loading them, choosing those that apply, running them.
--
-- A plugin is a table with `name`, `version`, `priority` (higher runs first), `schema` and one
-- handler per phase it takes part in. `loaded` holds every plugin that the gateway knows, in
-- running order, whether or not any rule uses it: that is what makes `filter` expensive.

local ipairs = ipairs
local pairs = pairs
local require = require
local table_sort = table.sort
local type = type

local _M = { version = 0.3 }

-- Every loaded plugin, highest priority first.
local loaded = {}

-- Names of plugins that the operator has switched off while the gateway runs.
local switched_off = {}

-- What the operator set for a plugin as a whole, by name: the same for every rule and route.
local attributes = {}


local function by_priority(a, b)
    if a.priority == b.priority then
        return a.name < b.name
    end
    return a.priority > b.priority
end


--- Loads the plugins named in `names`, puts them in running order, and takes over what the operator
--- set for them.
function _M.load(names, settings)
    switched_off = settings.switched_off
    attributes = settings.attributes
    loaded = {}
    for i, name in ipairs(names) do
        local plugin = require("gateway.plugins." .. name)
        if plugin.name ~= name then
            error("the module of plugin " .. name .. " calls itself " .. tostring(plugin.name))
        end
        loaded[i] = plugin
    end
    table_sort(loaded, by_priority)
    return #loaded
end


local function is_configured(conf)
    if type(conf) ~= "table" then
        return false
    end
    local meta = conf._meta
    return not (meta and meta.disable)
end


-- What a route says about a plugin goes before what the global rule says, field by field.
local function merge_conf(plugin, global_conf, route_conf)
    local merged = {}
    local defaults = plugin.schema.properties
    for field, property in pairs(defaults) do
        merged[field] = property.default
    end
    if global_conf then
        for field, value in pairs(global_conf) do
            merged[field] = value
        end
    end
    if route_conf then
        for field, value in pairs(route_conf) do
            merged[field] = value
        end
    end
    return merged
end


--- The plugins that apply to this request, in running order, each with its merged configuration.
--
-- Walks every loaded plugin and looks it up in the operator's settings, in the rule and in the route.
-- The list that comes out holds two entries; the walk does not get shorter for that.
function _M.filter(rule, route)
    local rule_plugins = rule.plugins
    local route_plugins = route and route.plugins or {}
    local list = {}

    for _, plugin in ipairs(loaded) do
        local name = plugin.name
        local attribute = attributes[name]
        local global_conf = rule_plugins[name]
        local route_conf = route_plugins[name]
        local in_rule = is_configured(global_conf)
        local in_route = is_configured(route_conf)

        if not switched_off[name] and (in_rule or in_route) then
            list[#list + 1] = {
                plugin = plugin,
                attribute = attribute,
                conf = merge_conf(plugin, in_rule and global_conf, in_route and route_conf),
            }
        end
    end

    return list
end


--- Runs the handler that each listed plugin has for `phase`.
function _M.run(phase, list, ctx)
    for _, entry in ipairs(list) do
        local handler = entry.plugin[phase]
        if handler then
            handler(entry.conf, ctx)
        end
    end
end


return _M
