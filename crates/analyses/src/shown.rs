//! Names and shares as text.

use throughline_profile::escape;

/// Longest name or place that is printed whole, in characters: a Lua chunk loaded from a string is named by its text.
const LONGEST_NAME: usize = 100;

/// A foreign name, harmless and of bounded length.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}...", escape(name.get(..end).unwrap_or(name))),
        None => escape(name).into_owned(),
    }
}

/// A share with one digit.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
