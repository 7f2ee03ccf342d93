//! Membership of control groups, v1 and v2: see cgroups(7).

use std::path::{Path, PathBuf};

use crate::{
    error::HostError,
    files::{Roots, fields, lines, number, read},
    name::printable,
    task::Status,
};

/// Deeper trees than this are not walked: systemd and Kubernetes nest fewer than ten.
const DEEPEST: usize = 32;

/// The lines of /proc/PID/cgroup, `id:controllers:path`. The path may hold colons.
pub(crate) fn parse(bytes: &[u8]) -> Vec<(String, String)> {
    lines(bytes)
        .filter_map(|line| {
            let mut parts = line.splitn(3, |&byte| byte == b':');
            let (_id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            Some((printable(controllers), printable(path)))
        })
        .collect()
}

/// The pids of a cgroup and of all below it. Pids of other pid namespaces read as 0 and are left out.
pub(crate) fn members(roots: &Roots, path: &str) -> Result<Vec<u32>, HostError> {
    let folders = folders(roots, path);
    if folders.is_empty() {
        return Err(HostError::NoSuchCgroup {
            path: printable(path.as_bytes()),
            looked_in: roots.sys.join("fs/cgroup").display().to_string(),
        });
    }
    let mut pids = Vec::new();
    for folder in folders {
        walk(roots, &folder, DEEPEST, &mut pids);
    }
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        return Err(HostError::EmptyCgroup {
            path: printable(path.as_bytes()),
        });
    }
    Ok(pids)
}

/// The folders of cgroupfs that the path may mean: itself, below the v2 mount, below each v1 hierarchy.
///
/// A path with `..` means none: what is below the mount is all a cgroup can be.
fn folders(roots: &Roots, path: &str) -> Vec<PathBuf> {
    if Path::new(path)
        .components()
        .any(|part| part.as_os_str() == "..")
    {
        return Vec::new();
    }
    let mount = roots.sys.join("fs/cgroup");
    let given = PathBuf::from(path);
    if given.starts_with(&mount) {
        return if is_cgroup(&given) {
            vec![given]
        } else {
            Vec::new()
        };
    }
    let below = path.trim_start_matches('/');
    let mut hierarchies = vec![mount.clone()];
    if let Ok(entries) = std::fs::read_dir(&mount) {
        // In a v2 mount these are child cgroups and not hierarchies; `x/PATH` then rarely exists, and
        // being asked for `PATH` it would be wrong: a v2 mount has cgroup.controllers at its top.
        if !mount.join("cgroup.controllers").exists() {
            hierarchies.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        }
    }
    hierarchies
        .into_iter()
        .map(|hierarchy| hierarchy.join(below))
        .filter(|folder| is_cgroup(folder))
        .collect()
}

fn is_cgroup(folder: &Path) -> bool {
    folder.join("cgroup.procs").exists()
}

fn walk(roots: &Roots, folder: &Path, depth: usize, pids: &mut Vec<u32>) {
    let listed = |bytes: Vec<u8>| -> Vec<u32> {
        lines(&bytes)
            .filter_map(|line| u32::try_from(number(fields(line).next()?)?).ok())
            .filter(|&pid| pid != 0)
            .collect()
    };
    match read(&folder.join("cgroup.procs")) {
        Ok(bytes) => pids.extend(listed(bytes)),
        // A threaded cgroup refuses cgroup.procs (EOPNOTSUPP) and lists threads instead.
        Err(_) => {
            let threads = read(&folder.join("cgroup.threads"))
                .map(listed)
                .unwrap_or_default();
            pids.extend(threads.into_iter().filter_map(|tid| {
                Status::parse(&roots.proc_file(&format!("{tid}/status")).ok()?)
                    .process
                    .ok()
            }));
        }
    }
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        // Symbolic links are not followed: file_type does not.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(roots, &entry.path(), depth, pids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{members, parse};
    use crate::{error::HostError, files::Roots};

    fn roots() -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: folder.path().join("proc"),
            sys: folder.path().join("sys"),
        };
        (folder, roots)
    }

    fn cgroup(roots: &Roots, path: &str, pids: &str) {
        let folder = roots.sys.join("fs/cgroup").join(path);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup.procs"), pids).unwrap();
    }

    #[test]
    fn a_path_may_hold_colons_and_both_versions_are_read() {
        let cgroups = parse(b"4:memory:/a:b\n1:cpu,cpuacct:/x\n0::/y.slice\n\nbroken\n");
        assert_eq!(cgroups.len(), 3);
        assert_eq!(cgroups[0], ("memory".into(), "/a:b".into()));
        assert_eq!(cgroups[2], (String::new(), "/y.slice".into()));
    }

    #[test]
    fn a_v2_cgroup_is_read_with_all_below_it() {
        let (_keep, roots) = roots();
        cgroup(&roots, "", "1\n");
        std::fs::write(roots.sys.join("fs/cgroup/cgroup.controllers"), "cpu\n").unwrap();
        cgroup(&roots, "system.slice", "");
        cgroup(&roots, "system.slice/gw.service", "10\n0\n");
        cgroup(&roots, "system.slice/gw.service/a/b", "12\n11\nx\n");
        for path in ["/system.slice/gw.service", "system.slice"] {
            assert_eq!(members(&roots, path).unwrap(), [10, 11, 12], "{path}");
        }
        let full = roots.sys.join("fs/cgroup/system.slice/gw.service/a");
        std::fs::write(full.join("cgroup.procs"), "").unwrap();
        assert_eq!(members(&roots, full.to_str().unwrap()).unwrap(), [11, 12]);
    }

    #[test]
    fn a_v1_path_is_looked_for_in_every_hierarchy() {
        let (_keep, roots) = roots();
        cgroup(&roots, "memory/docker/abc", "7\n");
        cgroup(&roots, "cpu/docker/abc", "7\n8\n");
        assert_eq!(members(&roots, "/docker/abc").unwrap(), [7, 8]);
    }

    #[test]
    fn an_empty_and_a_missing_cgroup_are_different_errors() {
        let (_keep, roots) = roots();
        cgroup(&roots, "empty", "");
        assert!(matches!(
            members(&roots, "/empty"),
            Err(HostError::EmptyCgroup { .. })
        ));
        assert!(matches!(
            members(&roots, "/none"),
            Err(HostError::NoSuchCgroup { .. })
        ));
        assert!(matches!(
            members(&roots, "/empty/../../.."),
            Err(HostError::NoSuchCgroup { .. })
        ));
    }
}
