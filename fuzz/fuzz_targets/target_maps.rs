//! Any bytes as the text of /proc/PID/maps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_target::parse_maps;

fuzz_target!(|data: &[u8]| {
    let maps = parse_maps(data);
    let lines = data
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty());
    assert_eq!(maps.mappings.len() + maps.bad_lines, lines.count());
    for mapping in &maps.mappings {
        assert!(mapping.size() > 0 && mapping.contains(mapping.start));
        assert!(maps.find(mapping.start).is_some());
        mapping.is_anonymous();
        mapping.path_lossy();
    }
});
