//! What a lab needs from the machine: nginx, its Lua module, and `resty.core`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::LabError;

/// Where nginx lies when it is not in PATH: a user's PATH often lacks the directories for root.
const NGINX_PLACES: [&str; 4] = [
    "/usr/sbin/nginx",
    "/usr/local/sbin/nginx",
    "/usr/local/nginx/sbin/nginx",
    "/usr/local/openresty/nginx/sbin/nginx",
];
/// Where dynamic modules lie when `nginx -V` does not say.
const MODULE_PLACES: [&str; 4] = [
    "/usr/lib/nginx/modules",
    "/usr/lib64/nginx/modules",
    "/usr/share/nginx/modules",
    "/usr/local/nginx/modules",
];
/// Where `resty/core.lua` lies.
const LUA_PLACES: [&str; 5] = [
    "/usr/share/lua/5.1",
    "/usr/local/share/lua/5.1",
    "/usr/local/lib/lua",
    "/usr/local/openresty/lualib",
    "/usr/share/nginx/lualib",
];
const NDK_MODULE: &str = "ndk_http_module.so";
const LUA_MODULE: &str = "ngx_http_lua_module.so";

/// An nginx that can run the labs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nginx {
    pub(super) binary: PathBuf,
    /// `load_module` directives; empty when the Lua module is built in.
    pub(super) load_modules: String,
    /// Patterns for `lua_package_path` that lead to `resty.core`.
    pub(super) lua_path: String,
}

/// Checks everything before anything is started.
pub(super) fn check(named: Option<&Path>) -> Result<Nginx, LabError> {
    let binary = find_binary(named, std::env::var_os("PATH").as_deref())?;
    let options = build_options(&binary)?;
    let load_modules = find_modules(&binary, &options)?;
    let lua_path = find_resty_core(&options)?;
    Ok(Nginx {
        binary,
        load_modules,
        lua_path,
    })
}

fn find_binary(
    named: Option<&Path>,
    search_path: Option<&std::ffi::OsStr>,
) -> Result<PathBuf, LabError> {
    if let Some(named) = named {
        return if named.is_file() {
            Ok(named.to_owned())
        } else {
            Err(LabError::NginxMissing {
                looked: named.display().to_string(),
            })
        };
    }
    let in_path = search_path
        .map(|path| std::env::split_paths(path).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join("nginx"));
    in_path
        .chain(NGINX_PLACES.iter().map(PathBuf::from))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| LabError::NginxMissing {
            looked: format!("any directory of PATH, nor {}", NGINX_PLACES.join(", ")),
        })
}

/// What `nginx -V` prints: version and configure arguments.
fn build_options(binary: &Path) -> Result<String, LabError> {
    let broken = |reason: String| LabError::NginxBroken {
        nginx: binary.to_owned(),
        reason,
    };
    let output = Command::new(binary)
        .arg("-V")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(broken(format!("{}: {}", output.status, text.trim())));
    }
    if !text.contains("nginx version") && !text.contains("configure arguments") {
        return Err(broken("it does not answer like nginx".to_owned()));
    }
    Ok(text)
}

fn option<'a>(options: &'a str, name: &str) -> Option<&'a str> {
    options
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .map(|value| value.trim_matches('\''))
}

/// Whether the Lua module is compiled into the binary; OpenResty names it `ngx_lua-VERSION`.
fn lua_is_built_in(options: &str) -> bool {
    options
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("--add-module="))
        .any(|path| {
            path.rsplit('/').next().is_some_and(|name| {
                name.starts_with("ngx_lua-")
                    || name.starts_with("lua-nginx-module")
                    || name == "http-lua"
            })
        })
}

fn find_modules(binary: &Path, options: &str) -> Result<String, LabError> {
    if lua_is_built_in(options) {
        return Ok(String::new());
    }
    let told = option(options, "--modules-path").map(PathBuf::from);
    let below_prefix = option(options, "--prefix").map(|prefix| Path::new(prefix).join("modules"));
    let places: Vec<PathBuf> = told
        .into_iter()
        .chain(below_prefix)
        .chain(MODULE_PLACES.iter().map(PathBuf::from))
        .collect();
    let Some(place) = places.iter().find(|place| place.join(LUA_MODULE).is_file()) else {
        return Err(LabError::LuaModuleMissing {
            nginx: binary.to_owned(),
            module: LUA_MODULE,
            looked: join(&places),
        });
    };
    let mut directives = String::new();
    // The Lua module needs the development kit's symbols, so that goes first; some builds have it
    // compiled in.
    for module in [NDK_MODULE, LUA_MODULE] {
        let file = place.join(module);
        if file.is_file() {
            directives.push_str(&format!("load_module \"{}\";\n", file.display()));
        }
    }
    Ok(directives)
}

fn find_resty_core(options: &str) -> Result<String, LabError> {
    let prefix = option(options, "--prefix").map(Path::new);
    let beside = prefix
        .and_then(Path::parent)
        .map(|parent| parent.join("lualib"));
    let below = prefix.map(|prefix| prefix.join("lualib"));
    let places: Vec<PathBuf> = beside
        .into_iter()
        .chain(below)
        .chain(LUA_PLACES.iter().map(PathBuf::from))
        .collect();
    match places
        .iter()
        .find(|place| place.join("resty/core.lua").is_file())
    {
        Some(place) => Ok(format!("{0}/?.lua;{0}/?/init.lua;", place.display())),
        None => Err(LabError::RestyCoreMissing {
            looked: join(&places),
        }),
    }
}

/// The places tried, each once, in order.
fn join(paths: &[PathBuf]) -> String {
    let mut names: Vec<String> = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_nginx_is_told_which_package_to_install() {
        let error = find_binary(Some(Path::new("/nonexistent/nginx")), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/nginx") && text.contains("apt-get install nginx"),
            "{text}"
        );
    }

    #[test]
    fn nginx_is_taken_from_the_search_path_before_the_usual_places() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("nginx"), "").unwrap();
        let found = find_binary(None, Some(directory.path().as_os_str())).unwrap();
        assert_eq!(found, directory.path().join("nginx"));
    }

    #[test]
    fn a_program_that_is_not_nginx_is_refused() {
        let error = check(Some(Path::new("/bin/true"))).unwrap_err();
        assert!(matches!(error, LabError::NginxBroken { .. }), "{error}");
    }

    #[test]
    fn openresty_has_the_module_built_in() {
        let options = "configure arguments: --prefix=/usr/local/openresty/nginx --add-module=../ngx_devel_kit-0.3.3 --add-module=../ngx_lua-0.10.26";
        assert_eq!(find_modules(Path::new("nginx"), options).unwrap(), "");
        assert!(!lua_is_built_in("--add-module=../ngx_lua_upstream-0.07"));
    }
}
