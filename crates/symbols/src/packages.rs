//! Which Debian package owns a file, from the lists of installed files in
//! `/var/lib/dpkg/info/PACKAGE.list` or `PACKAGE:ARCH.list` (one path a line).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Lists are read one at a time; the largest known has 5 MB.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The owners of some files, looked up together: all lists are read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageOwners {
    by_path: HashMap<PathBuf, String>,
}

impl PackageOwners {
    /// Looks the paths up in the lists of a directory, normally `/var/lib/dpkg/info`.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed: most likely this is no Debian system.
    pub fn read(lists: &Path, paths: &[PathBuf]) -> io::Result<Self> {
        let wanted = spellings(paths);
        let mut owners = Self::default();
        for entry in fs::read_dir(lists)? {
            let list = entry?.path();
            let Some(package) = package_of(&list) else {
                continue;
            };
            let fits = fs::metadata(&list).is_ok_and(|data| data.len() <= MAX_LIST_BYTES);
            let Some(text) = fits.then(|| fs::read(&list).ok()).flatten() else {
                continue;
            };
            for line in text.split(|&byte| byte == b'\n') {
                for path in wanted.get(line).into_iter().flatten() {
                    owners.by_path.insert((*path).clone(), package.clone());
                }
            }
        }
        Ok(owners)
    }

    /// The package that installed the file, without its architecture.
    pub fn owner(&self, path: &Path) -> Option<&str> {
        self.by_path.get(path).map(String::as_str)
    }
}

/// The spellings of each path in the lists: before the merge of `/lib` into `/usr/lib` packages
/// shipped the same file under the shorter name, and their lists keep it.
fn spellings(paths: &[PathBuf]) -> HashMap<Vec<u8>, Vec<&PathBuf>> {
    use std::os::unix::ffi::OsStrExt;
    let mut wanted: HashMap<Vec<u8>, Vec<&PathBuf>> = HashMap::new();
    for path in paths {
        let whole = path.as_os_str().as_bytes();
        wanted.entry(whole.to_vec()).or_default().push(path);
        if let Some(short) = whole.strip_prefix(b"/usr") {
            wanted.entry(short.to_vec()).or_default().push(path);
        } else {
            let long = [b"/usr", whole].concat();
            wanted.entry(long).or_default().push(path);
        }
    }
    wanted
}

/// `libc6:amd64.list` is the list of libc6.
fn package_of(list: &Path) -> Option<String> {
    let name = list.file_name()?.to_str()?.strip_suffix(".list")?;
    Some(name.split(':').next().unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_under_both_spellings_of_a_merged_usr() {
        let directory = tempfile::tempdir().unwrap();
        let list = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        list("libc6:amd64.list", "/.\n/lib/x/libc.so.6\n");
        list("nginx.list", "/usr/sbin/nginx\n");
        list("nginx.md5sums", "/usr/sbin/nginx\n");
        let paths = ["/usr/lib/x/libc.so.6", "/usr/sbin/nginx", "/opt/own"].map(PathBuf::from);
        let owners = PackageOwners::read(directory.path(), &paths).unwrap();
        assert_eq!(owners.owner(&paths[0]), Some("libc6"));
        assert_eq!(owners.owner(&paths[1]), Some("nginx"));
        assert_eq!(owners.owner(&paths[2]), None);
    }
}
