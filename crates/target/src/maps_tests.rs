use super::*;

/// Lines as proc_pid_maps(5) shows them.
const MANUAL: &[u8] = b"\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
00e03000-00e24000 rw-p 00000000 00:00 0           [heap]
35b1a21000-35b1a22000 rw-p 00000000 00:00 0
f2c6ff8c000-7f2c7078c000 rw-p 00000000 00:00 0    [stack:986]
";

#[test]
fn the_lines_of_the_manual_are_read() {
    let maps = parse_maps(MANUAL);
    assert_eq!((maps.mappings.len(), maps.bad_lines), (4, 0));
    let first = &maps.mappings[0];
    assert_eq!(
        (first.start, first.end, first.inode),
        (0x0040_0000, 0x0045_2000, 173_521)
    );
    assert_eq!(first.device, (8, 2));
    assert!(first.permissions.read && first.permissions.execute && !first.permissions.write);
    assert_eq!(first.path.as_deref(), Some(&b"/usr/bin/dbus-daemon"[..]));
    assert_eq!(maps.mappings[2].path, None);
    let anonymous: Vec<bool> = maps.mappings.iter().map(Mapping::is_anonymous).collect();
    assert_eq!(anonymous, [false, true, true, false]);
    assert_eq!(
        maps.find(0x00e0_3000).map(|mapping| mapping.end),
        Some(0x00e2_4000)
    );
    assert_eq!(maps.find(0x00e2_4000), None);
}

#[test]
fn a_path_keeps_spaces_backslashes_and_its_deleted_mark() {
    let line = b"1000-2000 r--s 00001000 fd:01 7    /tmp/a b\\c\\012d\xff (deleted)\n";
    let maps = parse_maps(line);
    assert_eq!(
        maps.mappings[0].path.as_deref(),
        Some(&b"/tmp/a b\\c\nd\xff (deleted)"[..])
    );
    assert!(maps.mappings[0].permissions.shared);
}

#[test]
fn a_line_that_makes_no_sense_is_counted_and_the_next_is_read() {
    let hostile: [&[u8]; 9] = [
        b"-",
        b"1000",
        b"2000-1000 r--p 0 0:0 0",
        b"1000-1000 r--p 0 0:0 0",
        b"+1000-2000 r--p 0 0:0 0",
        b"1000-2000 rwxpp 0 0:0 0",
        b"1000-2000 r--p 0 0:0 99999999999999999999",
        b"11111111111111111-2 r--p 0 0:0 0",
        b"\xff\xff-\xff r--p 0 0:0 0",
    ];
    for line in hostile {
        let text = [line, b"\n3000-4000 r--p 0 0:0 0\n"].concat();
        let maps = parse_maps(&text);
        assert_eq!(
            (maps.mappings.len(), maps.bad_lines),
            (1, 1),
            "{}",
            line.escape_ascii()
        );
    }
}
