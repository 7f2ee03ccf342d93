//! The labs there are, with their files as part of the library.

use serde::Serialize;

use super::LabError;

/// A lab as `throughline lab list` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LabInfo {
    /// The name to run it by.
    pub name: &'static str,
    /// What runs, in a sentence.
    pub summary: &'static str,
    /// What an operator would notice.
    pub symptom: &'static str,
}

/// The labs there are.
pub fn list() -> Vec<LabInfo> {
    LABS.iter().map(|lab| lab.info).collect()
}

/// A file of a lab: path below the lab's directory, content.
pub(super) type LabFile = (&'static str, &'static str);

/// All that is fixed about a lab.
#[derive(Debug)]
pub(super) struct Lab {
    pub(super) info: LabInfo,
    pub(super) gateway_conf: &'static str,
    pub(super) upstream_conf: Option<&'static str>,
    pub(super) files: &'static [LabFile],
    /// What the gateway answers at `/`.
    pub(super) body: &'static str,
    pub(super) workers: u32,
    pub(super) connections: u32,
    /// Whether the fault needs writes that wait for a disk.
    pub(super) needs_disk: bool,
}

/// Includes files of one lab by their paths below its `lua` directory.
macro_rules! lua_files {
    ($lab:literal, $($path:literal),+ $(,)?) => {
        &[$((
            concat!("lua/", $path),
            include_str!(concat!("../../../../lab/", $lab, "/lua/", $path)),
        )),+]
    };
}

static LABS: [Lab; 3] = [
    Lab {
        info: LabInfo {
            name: "global-rules",
            summary: "a gateway with 122 loaded plugins, two of them configured globally, builds the \
                      list of plugins that apply anew at each of nine phase entries per request",
            symptom: "throughput fell after a plugin was enabled globally; the worker holds a full core",
        },
        gateway_conf: include_str!("../../../../lab/global-rules/nginx.conf"),
        upstream_conf: Some(include_str!("../../../../lab/global-rules/upstream.conf")),
        files: lua_files!(
            "global-rules",
            "gateway/config.lua",
            "gateway/init.lua",
            "gateway/plugin.lua",
            "gateway/plugins/catalog.lua",
            "gateway/plugins/metrics.lua",
            "gateway/plugins/response-headers.lua",
            "gateway/router.lua",
        ),
        body: "hello from the service behind the gateway\n",
        workers: 1,
        connections: 64,
        needs_disk: false,
    },
    Lab {
        info: LabInfo {
            name: "log-bypass",
            summary: "a gateway logs debug messages that are never printed, and its logger looks at phase, \
                      caller and context before it looks at the level",
            symptom: "throughput fell after an upgrade of the logger; the worker holds a full core, and no \
                      function stands out",
        },
        gateway_conf: include_str!("../../../../lab/log-bypass/nginx.conf"),
        upstream_conf: None,
        files: lua_files!(
            "log-bypass",
            "gateway/init.lua",
            "gateway/limits.lua",
            "gateway/log.lua",
            "gateway/metrics.lua",
            "gateway/networks.lua",
            "gateway/rewrite.lua",
            "gateway/routes.lua",
            "gateway/signature.lua",
        ),
        body: "signed -1451724682\n",
        workers: 1,
        connections: 64,
        needs_disk: false,
    },
    Lab {
        info: LabInfo {
            name: "sync-log",
            summary: "workers append to one audit log under a lock and wait for the disk after each \
                      record",
            symptom: "throughput is stuck and latency high while the CPU is mostly idle",
        },
        gateway_conf: include_str!("../../../../lab/sync-log/nginx.conf"),
        upstream_conf: None,
        files: lua_files!("sync-log", "audit/init.lua", "audit/log.lua"),
        body: "recorded\n",
        workers: 2,
        // A disk that is busy with other work may need 5 ms a record: 16 requests then wait 0.4 s.
        connections: 16,
        needs_disk: true,
    },
];

pub(super) fn find(name: &str) -> Result<&'static Lab, LabError> {
    LABS.iter()
        .find(|lab| lab.info.name == name)
        .ok_or_else(|| LabError::Unknown {
            name: name.to_owned(),
            known: LABS
                .iter()
                .map(|lab| lab.info.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_lab_is_refused_with_the_names_there_are() {
        let error = find("no-such-lab").unwrap_err().to_string();
        assert!(
            error.contains("no-such-lab") && error.contains("global-rules"),
            "{error}"
        );
    }

    #[test]
    fn every_file_below_a_lua_directory_is_part_of_the_library() {
        for lab in &LABS {
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../lab")
                .join(lab.info.name);
            let mut found = Vec::new();
            collect(&root.join("lua"), &root, &mut found);
            found.sort();
            let mut listed: Vec<_> = lab
                .files
                .iter()
                .map(|(path, _)| (*path).to_owned())
                .collect();
            listed.sort();
            assert_eq!(found, listed, "lab {}", lab.info.name);
        }
    }

    fn collect(directory: &std::path::Path, root: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, found);
            } else {
                found.push(
                    path.strip_prefix(root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                );
            }
        }
    }
}
