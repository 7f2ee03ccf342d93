//! A folder of fixtures stands for /proc, so that names and damage are chosen and not hoped for.

use super::{Selector, find_below};
use crate::{error::HostError, files::Roots};

struct Fixture {
    _folder: tempfile::TempDir,
    roots: Roots,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let roots = Roots {
        proc: folder.path().join("proc"),
        sys: folder.path().join("sys"),
    };
    std::fs::create_dir_all(&roots.proc).unwrap();
    Fixture {
        _folder: folder,
        roots,
    }
}

impl Fixture {
    fn process(&self, pid: u32, comm: &[u8], exe: &str) -> &Self {
        let folder = self.roots.proc.join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let mut stat = format!("{pid} (").into_bytes();
        stat.extend_from_slice(comm);
        stat.extend_from_slice(b") S 1");
        for field in 5..=52 {
            stat.extend_from_slice(format!(" {field}").as_bytes());
        }
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("status"), format!("Name:\tx\nTgid:\t{pid}\n")).unwrap();
        std::fs::write(folder.join("cgroup"), "0::/a\n").unwrap();
        if !exe.is_empty() {
            std::os::unix::fs::symlink(exe, folder.join("exe")).unwrap();
        }
        self
    }

    fn named(&self, name: &str) -> Result<Vec<u32>, HostError> {
        let selector = Selector {
            name: Some(name.into()),
            ..Selector::default()
        };
        find_below(&self.roots, &selector)
            .map(|found| found.iter().map(|process| process.pid).collect())
    }
}

#[test]
fn a_name_matches_comm_or_the_executables_file_name() {
    let fixture = fixture();
    fixture.process(1, b"init", "/sbin/init");
    fixture.process(10, b"nginx", "/usr/sbin/nginx");
    fixture.process(11, b"worker 3", "/usr/sbin/nginx (deleted)");
    fixture.process(12, b"nginx", "");
    fixture.process(13, b"nginx-debug", "/usr/sbin/nginx-debug");
    assert_eq!(fixture.named("nginx").unwrap(), [10, 11, 12]);
    assert_eq!(fixture.named("worker 3").unwrap(), [11]);
}

#[test]
fn a_name_longer_than_comm_is_decided_by_the_executable() {
    let fixture = fixture();
    fixture.process(1, b"init", "");
    // The kernel cuts both names to "gateway-control".
    fixture.process(20, b"gateway-control", "/opt/gateway-controller");
    fixture.process(21, b"gateway-control", "/opt/gateway-controlplane");
    fixture.process(22, b"gateway-control", "");
    assert_eq!(fixture.named("gateway-controller").unwrap(), [20, 22]);
}

#[test]
fn a_hostile_name_is_found_by_its_bytes_and_shown_escaped() {
    let fixture = fixture();
    fixture.process(1, b"init", "");
    fixture.process(30, b"a) R 1 (b\n", "");
    let selector = Selector {
        name: Some("a) R 1 (b\n".into()),
        ..Selector::default()
    };
    let found = find_below(&fixture.roots, &selector).unwrap();
    assert_eq!((found[0].pid, found[0].comm.as_str()), (30, "a) R 1 (b\\n"));
    assert_eq!(found[0].start_ticks, 22);
}

#[test]
fn no_match_says_what_was_looked_for_and_whether_processes_are_hidden() {
    let fixture = fixture();
    fixture.process(1, b"init", "");
    let error = fixture.named("nope\x1b[2J").unwrap_err().to_string();
    assert!(
        error.contains("nope") && !error.contains('\x1b') && !error.contains("hidepid"),
        "{error}"
    );
    std::fs::remove_dir_all(fixture.roots.proc.join("1")).unwrap();
    fixture.process(44, b"mine", "");
    assert!(
        fixture
            .named("nginx")
            .unwrap_err()
            .to_string()
            .contains("hidepid")
    );
}

#[test]
fn a_thread_id_is_told_from_a_process_id() {
    let fixture = fixture();
    fixture
        .process(1, b"init", "")
        .process(50, b"main", "")
        .process(51, b"thread", "");
    std::fs::write(fixture.roots.proc.join("51/status"), "Tgid:\t50\n").unwrap();
    let by_pid = |pid| {
        find_below(
            &fixture.roots,
            &Selector {
                pids: vec![pid],
                ..Selector::default()
            },
        )
    };
    assert!(matches!(
        by_pid(51),
        Err(HostError::ThreadNotProcess {
            tid: 51,
            process: 50
        })
    ));
    assert!(matches!(
        by_pid(99),
        Err(HostError::NoSuchPid { pid: 99, .. })
    ));
    assert_eq!(by_pid(50).unwrap().len(), 1);
}

#[test]
fn criteria_narrow_each_other_and_none_is_an_error() {
    let fixture = fixture();
    fixture
        .process(1, b"init", "")
        .process(60, b"nginx", "")
        .process(61, b"nginx", "");
    let selector = Selector {
        pids: vec![61],
        name: Some("nginx".into()),
        cgroup: None,
    };
    assert_eq!(find_below(&fixture.roots, &selector).unwrap().len(), 1);
    let selector = Selector {
        pids: vec![1],
        name: Some("nginx".into()),
        cgroup: None,
    };
    assert!(matches!(
        find_below(&fixture.roots, &selector),
        Err(HostError::NothingInCommon)
    ));
    assert!(matches!(
        find_below(&fixture.roots, &Selector::default()),
        Err(HostError::EmptySelector)
    ));
}
