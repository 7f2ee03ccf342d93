//! Names of Lua functions. A LuaJIT prototype has none: it has a chunk name and a line. The name stands in the source
//! file, on the line where the function is defined, so it is read from there when the file can be read.

use std::io::Read;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use throughline_symbols::open_file_below;

/// Larger source files are not read.
const SOURCE_BYTES_MAX: u64 = 4 << 20;

/// Source files that are remembered; beyond that all are forgotten and read again when needed.
const FILES_MAX: usize = 4096;

/// Why a Lua function is shown by its place and not by a name.
pub const NO_NAME_IN_SOURCE: &str = "anonymous_function";
/// The chunk's source file could not be read, or is not a file.
pub const SOURCE_UNREADABLE: &str = "source_unreadable";

/// The functions of one file by the line on which each is defined; some have no name there.
type NamesByLine = FxHashMap<u32, Option<String>>;

/// Names by process and source file, each file read once.
#[derive(Default)]
pub struct FunctionNames {
    files: FxHashMap<(u32, PathBuf), Option<NamesByLine>>,
}

impl FunctionNames {
    /// The name of the function that is defined on `line` of the chunk, in the file system of process `pid`.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn name(&mut self, pid: u32, chunk: &str, line: u32) -> Result<String, &'static str> {
        if line == 0 {
            return Ok("(main chunk)".to_owned());
        }
        let path = chunk.strip_prefix('@').ok_or(SOURCE_UNREADABLE)?;
        let file = if path.starts_with('/') {
            PathBuf::from(path)
        } else {
            std::fs::read_link(format!("/proc/{pid}/cwd"))
                .map_err(|_| SOURCE_UNREADABLE)?
                .join(path)
        };
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        let lines = self
            .files
            .entry((pid, file))
            .or_insert_with_key(|(_, file)| {
                read_source(&root, file).map(|text| names_by_line(&text))
            })
            .as_ref()
            .ok_or(SOURCE_UNREADABLE)?;
        lines.get(&line).cloned().flatten().ok_or(NO_NAME_IN_SOURCE)
    }
}

/// The text of a source file in a process's file system. The name is whatever the program gave its chunk, so it may be that of a
/// FIFO, of a device, or of a file that exists only while it is read, as in /proc, where reading can block or take something away;
/// none of those is opened for reading or has a size.
fn read_source(root: &Path, path: &Path) -> Option<String> {
    let file = open_file_below(root, path).ok()?;
    let size = file.metadata().ok()?.len();
    if !(1..=SOURCE_BYTES_MAX).contains(&size) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Every line that holds the word `function`, with the name of the function that it defines when that is exactly one.
fn names_by_line(text: &str) -> NamesByLine {
    text.lines()
        .zip(1u32..)
        .filter(|(line, _)| line.contains("function"))
        .map(|(line, number)| (number, name_on_line(line)))
        .collect()
}

/// The name that a line of Lua gives to the one function that it defines.
fn name_on_line(line: &str) -> Option<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut keywords = line.match_indices("function").filter(|&(at, keyword)| {
        let before = line[..at].chars().next_back();
        let after = line[at + keyword.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    });
    let (at, keyword) = keywords.next()?;
    if keywords.next().is_some() {
        return None;
    }
    let after = line[at + keyword.len()..].trim_start();
    let declared: String = after
        .chars()
        .take_while(|&c| is_word(c) || c == '.' || c == ':')
        .collect();
    let name = if declared.is_empty() {
        assigned_name(&line[..at])
    } else {
        Some(declared)
    }?;
    Some(name.strip_prefix("_M.").unwrap_or(&name).to_owned())
}

/// `NAME` of `local NAME = `, `t.NAME = `, `["NAME"] = ` before an anonymous function.
fn assigned_name(before: &str) -> Option<String> {
    let target = before.trim_end().strip_suffix('=')?.trim_end();
    if let Some(key) = target
        .strip_suffix("\"]")
        .or_else(|| target.strip_suffix("']"))
    {
        let start = key.rfind(['"', '\''])? + 1;
        return Some(key[start..].to_owned()).filter(|name| !name.is_empty());
    }
    let start = target
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == ':'))
        .map_or(0, |at| {
            at + target[at..].chars().next().map_or(1, char::len_utf8)
        });
    Some(target[start..].to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> Option<String> {
        name_on_line(line)
    }

    #[test]
    fn the_forms_in_which_lua_names_a_function_are_read() {
        assert_eq!(
            name("local function filter(conf, plugins)").as_deref(),
            Some("filter")
        );
        assert_eq!(
            name("function _M.run_global_rules(api_ctx)").as_deref(),
            Some("run_global_rules")
        );
        assert_eq!(
            name("function Router:match(uri)").as_deref(),
            Some("Router:match")
        );
        assert_eq!(
            name("  local log = function(level, ...)").as_deref(),
            Some("log")
        );
        assert_eq!(
            name("handlers.access = function() return end").as_deref(),
            Some("handlers.access")
        );
        assert_eq!(
            name("t[\"on close\"] = function()").as_deref(),
            Some("on close")
        );
        assert_eq!(name("{ run = function(self)").as_deref(), Some("run"));
    }

    #[test]
    fn lines_that_do_not_tell_give_no_name() {
        assert_eq!(name("return pcall(function()"), None);
        assert_eq!(name("local a, b = function() end, function() end"), None);
        assert_eq!(name("local functional = 1"), None);
        assert_eq!(name("é = é.function("), None);
    }
}
