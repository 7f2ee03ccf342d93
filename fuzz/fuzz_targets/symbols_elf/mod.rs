//! A minimal ELF file around given sections, so that the fuzzer mutates a table and not the way to it.

/// Where `.text` lies; it is 64 KiB long and has no bytes.
pub const TEXT: u64 = 0x40_1000;

struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
}

const PROGBITS: u32 = 1;
const STRTAB: u32 = 3;
const NOBITS: u32 = 8;

/// An x86-64 executable with `.text` and the sections (name, address, bytes).
pub fn with_sections(sections: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let mut names = b"\0.text\0.shstrtab\0".to_vec();
    let mut body = Vec::new();
    let text = Header {
        name: 1,
        kind: NOBITS,
        flags: 6,
        address: TEXT,
        offset: 0,
        size: 0x1_0000,
    };
    let mut headers = vec![text];
    for &(name, address, bytes) in sections {
        headers.push(Header {
            name: names.len() as u32,
            kind: PROGBITS,
            flags: if address == 0 { 0 } else { 2 },
            address,
            offset: 64 + body.len() as u64,
            size: bytes.len() as u64,
        });
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        body.extend_from_slice(bytes);
    }
    let offset = 64 + body.len() as u64;
    headers.push(Header {
        name: 7,
        kind: STRTAB,
        flags: 0,
        address: 0,
        offset,
        size: names.len() as u64,
    });
    body.extend_from_slice(&names);

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend_from_slice(&2u16.to_le_bytes());
    file.extend_from_slice(&62u16.to_le_bytes());
    file.extend_from_slice(&1u32.to_le_bytes());
    for word in [TEXT, 0, 64 + body.len() as u64] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0; 4]);
    for half in [
        64,
        56,
        0,
        64,
        headers.len() as u16 + 1,
        headers.len() as u16,
    ] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&body);
    file.extend_from_slice(&[0; 64]);
    for header in headers {
        file.extend_from_slice(&header.name.to_le_bytes());
        file.extend_from_slice(&header.kind.to_le_bytes());
        for word in [header.flags, header.address, header.offset, header.size] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&1u64.to_le_bytes());
        file.extend_from_slice(&0u64.to_le_bytes());
    }
    file
}
