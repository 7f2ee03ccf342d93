//! Functions: frames merged by what they are, not by the place within them.

use rustc_hash::FxHashMap;
use throughline_profile::{Frame, FrameId, FrameKind, ModuleId, Profile, StringId};

/// Label of a frame that has no name at all.
const NO_NAME: &str = "[no name]";
/// Label of the frame that stands for samples without a stack.
pub(crate) const NO_STACK: &str = "[no stack]";

/// The text by which a frame's function is known, in every output.
///
/// For Lua the name and the place of definition, `filter plugin.lua:578`; the place alone when the
/// name already says it (`plugin.lua:120`). For everything else the name. The text is raw: whoever
/// writes it out escapes it.
#[must_use]
pub fn label(profile: &Profile, frame: FrameId) -> String {
    let frame = profile.frames.get(frame);
    let name = profile.strings.get(frame.name);
    let Some(place) = definition(profile, frame) else {
        return if name.is_empty() { NO_NAME } else { name }.to_owned();
    };
    if name.is_empty() || name == place {
        place
    } else if name.contains(&place) {
        name.to_owned()
    } else {
        format!("{name} {place}")
    }
}

/// `plugin.lua:578` for a Lua function whose chunk is known.
fn definition(profile: &Profile, frame: &Frame) -> Option<String> {
    if !frame.kind.is_lua() {
        return None;
    }
    let chunk = profile.strings.get(frame.source?);
    // LuaJIT marks file names with `@` and other names with `=`; a chunk without a mark is Lua text
    // that was loaded from a string, and its first line has to do.
    let file = if let Some(name) = chunk.strip_prefix('=') {
        name
    } else if chunk.starts_with('@') || chunk.ends_with(".lua") {
        let path = chunk.strip_prefix('@').unwrap_or(chunk);
        path.rsplit('/').next().unwrap_or(path)
    } else {
        chunk.lines().next().unwrap_or_default()
    };
    if file.is_empty() {
        return None;
    }
    Some(match frame.first_line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    })
}

/// Handle of a function in a [`FunctionTable`].
pub(crate) type FunctionId = u32;

/// What makes two frames one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    Code(FrameKind, StringId, Option<ModuleId>),
    Lua(FrameKind, StringId, Option<StringId>, u32),
    NoStack,
}

/// A function as the outputs show it.
pub(crate) struct Function {
    pub label: String,
    pub kind: FrameKind,
    pub module: Option<StringId>,
    pub source: Option<StringId>,
    pub first_line: u32,
    pub name_reason: Option<StringId>,
}

/// The functions of a profile, and which of them each frame belongs to.
pub(crate) struct FunctionTable {
    rows: Vec<Function>,
    of_frame: Vec<FunctionId>,
    no_stack: FunctionId,
}

impl FunctionTable {
    pub fn new(profile: &Profile) -> Self {
        let mut ids: FxHashMap<Identity, FunctionId> = FxHashMap::default();
        let mut rows: Vec<Function> = Vec::new();
        let mut of_frame = Vec::with_capacity(profile.frames.len());
        for (id, frame) in profile.frames.iter() {
            let known = *ids.entry(identity(frame)).or_insert_with(|| {
                rows.push(Function {
                    label: label(profile, id),
                    kind: frame.kind,
                    module: frame.module.map(|module| profile.modules.get(module).path),
                    source: frame.source,
                    first_line: frame.first_line,
                    name_reason: frame.name_reason,
                });
                (rows.len() - 1) as FunctionId
            });
            if let Some(row) = rows.get_mut(known as usize) {
                row.name_reason = row.name_reason.or(frame.name_reason);
                row.source = row.source.or(frame.source);
            }
            of_frame.push(known);
        }
        let no_stack = *ids.entry(Identity::NoStack).or_insert_with(|| {
            rows.push(Function {
                label: NO_STACK.to_owned(),
                kind: FrameKind::Marker,
                module: None,
                source: None,
                first_line: 0,
                name_reason: None,
            });
            (rows.len() - 1) as FunctionId
        });
        Self {
            rows,
            of_frame,
            no_stack,
        }
    }

    pub fn of_frame(&self, frame: FrameId) -> FunctionId {
        self.of_frame[frame.index()]
    }

    /// The function of samples that have no stack.
    pub fn no_stack(&self) -> FunctionId {
        self.no_stack
    }

    pub fn get(&self, id: FunctionId) -> &Function {
        &self.rows[id as usize]
    }

    pub fn rows(&self) -> &[Function] {
        &self.rows
    }
}

fn identity(frame: &Frame) -> Identity {
    if frame.kind.is_lua() {
        Identity::Lua(frame.kind, frame.name, frame.source, frame.first_line)
    } else {
        Identity::Code(frame.kind, frame.name, frame.module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lua(name: &str, source: &str, first_line: u32) -> String {
        let mut profile = Profile::default();
        let name = profile.strings.intern(name);
        let source = Some(profile.strings.intern(source));
        let frame = Frame {
            source,
            first_line,
            ..Frame::new(FrameKind::Lua, name)
        };
        let frame = profile.frames.intern(frame);
        label(&profile, frame)
    }

    #[test]
    fn a_lua_function_reads_as_its_name_and_its_place() {
        assert_eq!(
            lua("filter", "@/usr/share/apisix/plugin.lua", 578),
            "filter plugin.lua:578"
        );
        assert_eq!(
            lua("plugin.lua:120", "@/usr/share/apisix/plugin.lua", 120),
            "plugin.lua:120"
        );
        assert_eq!(lua("", "@plugin.lua", 3), "plugin.lua:3");
        assert_eq!(lua("main", "=(command line)", 0), "main (command line)");
        assert_eq!(lua("f", "local a = 1/2\nreturn a", 1), "f local a = 1/2:1");
        assert_eq!(lua("", "", 0), NO_NAME);
    }

    #[test]
    fn places_of_one_function_are_one_function_and_namesakes_are_not() {
        let mut profile = Profile::default();
        let name = profile.strings.intern("f");
        let source = Some(profile.strings.intern("@a.lua"));
        let at = |first_line, line| Frame {
            source,
            first_line,
            line,
            address: line.into(),
            ..Frame::new(FrameKind::Lua, name)
        };
        let [one, same, other] =
            [at(1, 2), at(1, 3), at(9, 10)].map(|frame| profile.frames.intern(frame));
        let native = profile.frames.intern(Frame::new(FrameKind::Native, name));
        let functions = FunctionTable::new(&profile);
        assert_eq!(functions.of_frame(one), functions.of_frame(same));
        assert_ne!(functions.of_frame(one), functions.of_frame(other));
        assert_ne!(functions.of_frame(one), functions.of_frame(native));
    }
}
