use super::*;

fn snapshot(code_offset: Option<u32>) -> Snapshot {
    Snapshot {
        code_offset,
        pc: 0,
        frames: Vec::new(),
        base: None,
        tail_called: false,
    }
}

#[test]
fn code_belongs_to_the_last_snapshot_that_begins_at_or_before_it() {
    let list = [0, 0, 40, 90].map(|offset| snapshot(Some(offset))).into();
    let snapshots = Snapshots {
        list,
        functions: Vec::new(),
    };
    let at = [0, 39, 40, 89, 90, 500].map(|offset| snapshots.at(offset));
    assert_eq!(at, [1, 1, 2, 2, 3, 3].map(Some));
}

#[test]
fn without_recorded_offsets_no_snapshot_is_named() {
    let snapshots = Snapshots {
        list: vec![snapshot(None); 3],
        functions: Vec::new(),
    };
    assert_eq!(snapshots.at(8), None);
}

/// Snapshots {map offset, IR reference, code offset, slots, top slot, entries, exits taken}.
fn raw(snapshots: &[(u32, u16, u8)]) -> Vec<u8> {
    let record = |&(map, code, entries): &(u32, u16, u8)| {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&map.to_le_bytes());
        bytes[6..8].copy_from_slice(&code.to_le_bytes());
        bytes[10] = entries;
        bytes
    };
    snapshots.iter().flat_map(record).collect()
}

#[test]
fn snapshots_whose_entries_do_not_fill_their_map_are_refused() {
    let map = |words: usize| vec![0; 4 * words];
    let two = raw(&[(0, 0, 3), (5, 64, 1)]);
    let cut = places(&two, &map(8)).map(|places| {
        let parts = places
            .iter()
            .map(|place| (place.code_offset, place.entries.len()));
        parts.collect::<Vec<_>>()
    });
    assert_eq!(cut, Some(vec![(Some(0), 12), (Some(64), 4)]));
    assert!(places(&two, &map(7)).is_none());
    assert!(places(&two, &map(9)).is_none());
    assert!(places(&raw(&[(0, 0, 3), (4, 64, 1)]), &map(8)).is_none());
    assert!(places(&raw(&[(u32::MAX, 0, 3)]), &map(8)).is_none());
}
