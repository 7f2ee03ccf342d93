//! What kind of machine this is, as far as it tells.

use serde::Serialize;

use crate::files::{Roots, fields, lines};

/// The machine, as it presents itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Release of the running kernel.
    pub kernel: String,
    /// The processor's name, when cpuinfo gives one.
    pub processor: String,
    /// Whether and how it is virtual.
    pub virtualisation: Virtualisation,
    /// What that was concluded from.
    pub evidence: Vec<String>,
}

/// Whether the machine is virtual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualisation {
    /// A virtual machine of a desktop product (VirtualBox, Parallels, VMware Workstation or Fusion,
    /// Docker Desktop, WSL): its cores are threads of a busy desktop.
    DesktopVm,
    /// A virtual machine of another kind.
    Vm,
    /// Nothing says that it is virtual; a hypervisor can hide.
    NoneSeen,
}

/// Names that desktop products leave in DMI or in the kernel's version, lower case. VMware is among them
/// although it also makes servers: told apart they cannot be, and a doubt belongs in a report.
const DESKTOP_MARKS: [&str; 7] = [
    "virtualbox",
    "innotek",
    "parallels",
    "vmware",
    "linuxkit",
    "wsl2",
    "apple virtualization",
];

/// The bytes a machine is judged by.
#[derive(Debug, Default)]
pub(crate) struct Marks<'a> {
    pub(crate) cpuinfo: &'a [u8],
    /// /proc/version.
    pub(crate) version: &'a [u8],
    /// sys_vendor and product_name of DMI, as far as they can be read.
    pub(crate) dmi: Vec<String>,
}

pub(crate) fn read(roots: &Roots) -> Machine {
    let cpuinfo = roots.proc_file("cpuinfo").unwrap_or_default();
    let version = roots.proc_file("version").unwrap_or_default();
    let dmi = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|file| roots.sys_value(&format!("class/dmi/id/{file}")).ok())
        .collect();
    judge(&Marks {
        cpuinfo: &cpuinfo,
        version: &version,
        dmi,
    })
}

pub(crate) fn judge(marks: &Marks<'_>) -> Machine {
    let line = |key: &[u8]| {
        lines(marks.cpuinfo)
            .find(|line| line.starts_with(key))
            .and_then(|line| line.split(|&b| b == b':').nth(1))
    };
    let mut evidence = Vec::new();
    let flagged =
        line(b"flags").is_some_and(|flags| fields(flags).any(|flag| flag == b"hypervisor"));
    if flagged {
        evidence.push("cpuinfo has the flag hypervisor".to_owned());
    }
    let version = crate::printable(marks.version.trim_ascii());
    let desktop = marks.dmi.iter().chain([&version]).find_map(|text| {
        let lower = text.to_lowercase();
        DESKTOP_MARKS
            .iter()
            .find(|mark| lower.contains(**mark))
            .map(|mark| format!("{mark:?} in {text:?}"))
    });
    let virtualisation = match desktop {
        Some(mark) => {
            evidence.push(mark);
            Virtualisation::DesktopVm
        }
        None if flagged => Virtualisation::Vm,
        None => Virtualisation::NoneSeen,
    };
    Machine {
        kernel: fields(marks.version)
            .nth(2)
            .map(crate::printable)
            .unwrap_or_default(),
        processor: line(b"model name")
            .map(|name| crate::printable(name.trim_ascii()))
            .unwrap_or_default(),
        virtualisation,
        evidence,
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, Virtualisation, judge};

    const FLAGGED: &[u8] =
        b"processor : 0\nmodel name\t: Some CPU @ 2GHz\nflags\t\t: fpu hypervisor avx\n";

    #[test]
    fn a_desktop_product_is_told_from_another_virtual_machine() {
        let machine = judge(&Marks {
            cpuinfo: FLAGGED,
            version: b"Linux version 6.1.0-9 (x) #1",
            dmi: vec![],
        });
        assert_eq!(machine.virtualisation, Virtualisation::Vm);
        assert_eq!(
            (machine.kernel.as_str(), machine.processor.as_str()),
            ("6.1.0-9", "Some CPU @ 2GHz")
        );
        let machine = judge(&Marks {
            cpuinfo: FLAGGED,
            version: b"",
            dmi: vec!["innotek GmbH".into(), "VirtualBox".into()],
        });
        assert_eq!(machine.virtualisation, Virtualisation::DesktopVm);
        assert_eq!(machine.evidence.len(), 2);
        let wsl = b"Linux version 5.15.90.1-microsoft-standard-WSL2 (oe) #1";
        assert_eq!(
            judge(&Marks {
                version: wsl,
                ..Marks::default()
            })
            .virtualisation,
            Virtualisation::DesktopVm
        );
    }

    #[test]
    fn without_marks_nothing_is_claimed() {
        assert_eq!(
            judge(&Marks {
                cpuinfo: b"\xff\nflags",
                version: b"",
                dmi: vec![]
            })
            .virtualisation,
            Virtualisation::NoneSeen
        );
    }
}
