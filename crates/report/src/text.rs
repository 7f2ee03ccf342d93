//! Escapes and numbers. The page writes both in the same way.

use std::fmt::Write;

/// Whether a character has no shape of its own, or changes how its neighbours are shown.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        // Not characters; XML 1.0 forbids two of them.
        || matches!(c, '\u{fdd0}'..='\u{fdef}')
        || matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff)
}

/// The text with every invisible character spelled out, for people.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            spell(&mut out, c);
        } else {
            out.push(c);
        }
    }
    out
}

/// One character as `\x0a` or `\u{202e}`.
fn spell(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a `String` cannot fail.
    let _ = if code < 0x80 {
        write!(out, "\\x{code:02x}")
    } else {
        write!(out, "\\u{{{code:x}}}")
    };
}

/// A frame of folded text; see the crate's page for the rules.
#[must_use]
pub fn escape_folded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            ';' => spell(&mut out, c),
            _ if is_invisible(c) => spell(&mut out, c),
            _ => out.push(c),
        }
    }
    out
}

/// The name behind a frame of folded text; `None` when an escape in it is not one of ours.
#[must_use]
pub fn unescape_folded(frame: &str) -> Option<String> {
    let mut out = String::with_capacity(frame.len());
    let mut rest = frame;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (c, tail) = if let Some(tail) = after.strip_prefix('\\') {
            ('\\', tail)
        } else if let Some(tail) = after.strip_prefix("u{") {
            let (digits, tail) = tail.split_once('}')?;
            (hex(digits)?, tail)
        } else {
            let tail = after.strip_prefix('x')?;
            (hex(tail.get(..2)?)?, tail.get(2..)?)
        };
        out.push(c);
        rest = tail;
    }
    out.push_str(rest);
    Some(out)
}

fn hex(digits: &str) -> Option<char> {
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

/// Text as content or attribute of HTML and XML, invisible characters spelled out.
pub(crate) fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// `14841` as `14,841`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Nanoseconds with three decimals of the largest unit that fits.
pub(crate) fn duration(ns: u64) -> String {
    let (unit, size) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    format!(
        "{}.{:03} {unit}",
        grouped(ns / size),
        ns % size / (size / 1000)
    )
}

/// A weight in the unit of its view.
pub(crate) fn weight(value: u64, is_time: bool) -> String {
    if is_time {
        duration(value)
    } else if value == 1 {
        "1 sample".to_owned()
    } else {
        format!("{} samples", grouped(value))
    }
}

/// A share in percent with two decimals; a dash when there is nothing to be a share of.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "\u{2013}".to_owned();
    }
    let hundredths = (part as f64 / whole as f64 * 10_000.0 + 0.5).floor() as u64;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_frame_reads_back_whatever_the_name_is() {
        for name in [
            "",
            "a;b",
            "a\nb",
            "\\x3b",
            "\\",
            "C:\\x",
            "\u{202e}\u{1b}[2J\0\u{7f}",
            "é 1",
        ] {
            let frame = escape_folded(name);
            assert!(
                !frame.contains([';', '\n', '\r', '\u{1b}', '\0', '\u{7f}']),
                "{frame:?}"
            );
            assert_eq!(unescape_folded(&frame).as_deref(), Some(name));
        }
        assert_eq!(escape_folded("a;b\n\\"), "a\\x3bb\\x0a\\\\");
        for foreign in ["\\", "\\q", "\\x4", "\\u{110000}", "\\u{", "\\x+1"] {
            assert_eq!(unescape_folded(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn names_with_brackets_blanks_and_operators_stay_whole() {
        for name in [
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "std::operator<< <char>(std::ostream&, char)",
            "(anonymous namespace)::run",
            "LazyCompile:~f /app/main.js:1:2 [x y]",
        ] {
            assert_eq!(escape_folded(name), name);
            assert_eq!(visible(name), name);
        }
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(grouped(14_841), "14,841");
        assert_eq!(grouped(841), "841");
        assert_eq!(duration(1_234_567), "1.234 ms");
        assert_eq!(duration(2_000_000_000), "2.000 s");
        assert_eq!(percent(441, 14_841), "2.97 %");
        assert_eq!(percent(0, 0), "\u{2013}");
    }
}
