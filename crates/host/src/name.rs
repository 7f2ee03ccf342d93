//! Names chosen by others, made safe to print.

use std::fmt::Write as _;

/// A process's name as text that cannot break a line, move a terminal's cursor or reverse its writing.
///
/// Valid UTF-8 is kept. Control characters and the invisible formatting characters (zero width,
/// bidirectional) become `\u{..}`, bytes that are not UTF-8 become `\xNN`, and a backslash becomes two, so
/// that different names stay different.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                c if c.is_control() || is_invisible(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_name_cannot_break_a_line_or_drive_a_terminal() {
        assert_eq!(printable(b"a b) R 1\n"), "a b) R 1\\n");
        assert_eq!(printable(b"\x1b[31mred"), "\\u{1b}[31mred");
        assert_eq!(printable(b"\xff\\"), "\\xff\\\\");
        assert_eq!(printable("n\u{202e}x".as_bytes()), "n\\u{202e}x");
        assert_eq!(printable("日本".as_bytes()), "日本");
    }
}
