//! `/proc/PID/maps` (proc_pid_maps(5)): which addresses a process has mapped, and to what.

/// Access that a mapping allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions {
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Writes are shared with other processes (`MAP_SHARED`).
    pub shared: bool,
}

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Access.
    pub permissions: Permissions,
    /// Offset into the file, in bytes.
    pub offset: u64,
    /// Device of the file: major and minor number; (0, 0) for none.
    pub device: (u32, u32),
    /// Inode of the file; 0 for none.
    pub inode: u64,
    /// The bytes of the path with the kernel's octal escapes undone, or a pseudo path such as
    /// `[heap]`; ` (deleted)` is kept, because a file's own name may end in it too. `None` for
    /// anonymous memory.
    pub path: Option<Vec<u8>>,
}

impl Mapping {
    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// True when `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Private memory of the process's own: no file behind it. A mapping that was named by
    /// `prctl(PR_SET_VMA_ANON_NAME)` and the heap count; stacks and the kernel's pages do not.
    pub fn is_anonymous(&self) -> bool {
        !self.permissions.shared
            && self.inode == 0
            && match self.path.as_deref() {
                None | Some(b"[heap]") => true,
                Some(path) => path.starts_with(b"[anon:"),
            }
    }

    /// The path for people: bytes that are no UTF-8 are replaced.
    pub fn path_lossy(&self) -> Option<String> {
        self.path
            .as_ref()
            .map(|path| String::from_utf8_lossy(path).into_owned())
    }
}

/// The mappings of a process, in the order of the file (by address).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Maps {
    /// Every line that could be read.
    pub mappings: Vec<Mapping>,
    /// Lines that could not.
    pub bad_lines: usize,
}

impl Maps {
    /// The mapping that `address` lies in.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        find_mapping(&self.mappings, address)
    }
}

/// The mapping that `address` lies in. A linear search, because the order of foreign input is
/// nothing to rely on.
pub fn find_mapping(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    mappings.iter().find(|mapping| mapping.contains(address))
}

/// Reads the text of `/proc/PID/maps`. Lines that make no sense are counted, not guessed at.
pub fn parse_maps(text: &[u8]) -> Maps {
    let mut maps = Maps::default();
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match parse_line(line) {
            Some(mapping) => maps.mappings.push(mapping),
            None => maps.bad_lines += 1,
        }
    }
    maps
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let (start, end) = split_at_byte(take_field(&mut rest)?, b'-')?;
    let (start, end) = (parse_hex(start)?, parse_hex(end)?);
    let permissions = parse_permissions(take_field(&mut rest)?)?;
    let offset = parse_hex(take_field(&mut rest)?)?;
    let (major, minor) = split_at_byte(take_field(&mut rest)?, b':')?;
    let device = (
        parse_hex(major)?.try_into().ok()?,
        parse_hex(minor)?.try_into().ok()?,
    );
    let inode = std::str::from_utf8(take_field(&mut rest)?)
        .ok()?
        .parse()
        .ok()?;
    // The kernel pads with spaces up to the path, which may itself hold spaces but for its start
    // is '/' or '['.
    let path = rest.trim_ascii_start();
    let path = (!path.is_empty()).then(|| undo_octal_escapes(path));
    (start < end).then_some(Mapping {
        start,
        end,
        permissions,
        offset,
        device,
        inode,
        path,
    })
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let line = *rest;
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    *rest = line.get(end + 1..).unwrap_or_default();
    line.get(..end).filter(|field| !field.is_empty())
}

fn split_at_byte(field: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(separator, field)?;
    Some((field.get(..at)?, field.get(at + 1..)?))
}

fn parse_hex(digits: &[u8]) -> Option<u64> {
    // `from_str_radix` would accept a sign.
    if !digits.first()?.is_ascii_hexdigit() {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn parse_permissions(field: &[u8]) -> Option<Permissions> {
    let &[read, write, execute, sharing] = field else {
        return None;
    };
    let flag = |byte: u8, set: u8| match byte {
        b'-' => Some(false),
        byte if byte == set => Some(true),
        _ => None,
    };
    Some(Permissions {
        read: flag(read, b'r')?,
        write: flag(write, b'w')?,
        execute: flag(execute, b'x')?,
        shared: match sharing {
            b's' => true,
            b'p' => false,
            _ => return None,
        },
    })
}

/// The kernel writes a newline in a path as `\012` and leaves every other byte as it is, the
/// backslash included (`seq_path` with the escape set "\n"), so only that one is undone.
fn undo_octal_escapes(path: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(NEWLINE) {
            bytes.push(b'\n');
            rest = tail;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
#[path = "maps_tests.rs"]
mod tests;
