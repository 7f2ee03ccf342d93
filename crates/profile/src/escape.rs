//! Making foreign names harmless on a terminal.

use std::borrow::Cow;

/// The text with everything that could steer a terminal, break a line or reorder a row made visible.
///
/// Control characters (also the eight-bit ones, and DEL) become `\x1b` and the like; line and
/// paragraph separators, direction marks and zero-width characters become `\u{202e}` and the like.
/// For people: a name that holds such text literally looks the same, so this is never read back.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if !is_unsafe(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

/// Whether a character acts on the display instead of appearing in it.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_escape_in_a_name_is_shown_and_not_obeyed() {
        assert_eq!(escape("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
        assert_eq!(escape("title\x1b]0;pwned\x07"), "title\\x1b]0;pwned\\x07");
        assert_eq!(escape("csi\u{9b}2J"), "csi\\x9b2J");
        assert_eq!(escape("nul\0del\x7f"), "nul\\x00del\\x7f");
    }

    #[test]
    fn a_name_cannot_break_its_line_or_turn_its_direction() {
        assert_eq!(escape("a\nb\r\tc"), "a\\nb\\r\\tc");
        assert_eq!(escape("x\u{202e}gpj.exe"), "x\\u{202e}gpj.exe");
        assert_eq!(escape("l\u{2028}m"), "l\\u{2028}m");
    }

    #[test]
    fn ordinary_names_of_any_script_pass_as_they_are() {
        for name in [
            "@/opt/plugin.lua:578",
            "<script>",
            "größe",
            "函数",
            "std::vec<T>&",
        ] {
            assert!(matches!(escape(name), Cow::Borrowed(same) if same == name));
        }
    }
}
