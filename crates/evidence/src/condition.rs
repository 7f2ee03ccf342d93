//! Conditions that must hold before something else may be concluded.

use serde::{Serialize, Serializer, ser::SerializeMap};

/// A condition, as `{"name", "holds", "reading", "threshold", "unit", "decisive", "detail"}`; a `null` among
/// them is followed by its `..._reason`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Stable name, snake case.
    pub name: &'static str,
    /// Whether it holds.
    pub holds: Holds,
    /// What was read, in `unit`; absent for the reason `holds` gives.
    pub reading: Option<f64>,
    /// What it was compared with, in `unit`.
    pub threshold: Option<f64>,
    /// Unit of reading and threshold.
    pub unit: &'static str,
    /// Whether failing it takes the verdict away. One that is not decisive is worth knowing only.
    pub decisive: bool,
    /// Which thread, process or core was read, and how.
    pub detail: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// It was read and holds.
    Yes,
    /// It was read and does not hold.
    No,
    /// It could not be read, for this reason.
    Unknown(String),
}

impl Condition {
    /// A condition without a reading, which says nothing for or against the verdict.
    pub fn unknown(name: &'static str, unit: &'static str, reason: impl Into<String>) -> Self {
        Self {
            name,
            holds: Holds::Unknown(reason.into()),
            reading: None,
            threshold: None,
            unit,
            decisive: false,
            detail: String::new(),
        }
    }

    /// Whether it was read and fails in a way that takes the verdict away.
    pub fn forbids(&self) -> bool {
        self.decisive && self.holds == Holds::No
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reason = match &self.holds {
            Holds::Unknown(reason) => reason.as_str(),
            Holds::Yes | Holds::No => "nothing to compare with",
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.name)?;
        match &self.holds {
            Holds::Yes => map.serialize_entry("holds", &true)?,
            Holds::No => map.serialize_entry("holds", &false)?,
            Holds::Unknown(reason) => {
                map.serialize_entry("holds", &None::<bool>)?;
                map.serialize_entry("holds_reason", reason)?;
            }
        }
        for (key, reason_key, value) in [
            ("reading", "reading_reason", self.reading),
            ("threshold", "threshold_reason", self.threshold),
        ] {
            map.serialize_entry(key, &value)?;
            if value.is_none() {
                map.serialize_entry(reason_key, reason)?;
            }
        }
        map.serialize_entry("unit", self.unit)?;
        map.serialize_entry("decisive", &self.decisive)?;
        map.serialize_entry("detail", &self.detail)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Holds};
    use serde_json::json;

    #[test]
    fn every_null_has_its_reason() {
        let unknown = Condition::unknown(
            "error_rate_stable",
            "errors_per_s",
            "no status endpoint given",
        );
        let value = serde_json::to_value(&unknown).unwrap();
        for key in ["holds", "reading", "threshold"] {
            assert_eq!(value[key], json!(null));
            assert_eq!(
                value[format!("{key}_reason")],
                json!("no status endpoint given")
            );
        }
    }

    #[test]
    fn a_condition_has_its_documented_shape() {
        let condition = Condition {
            name: "worker_saturated",
            holds: Holds::Yes,
            reading: Some(0.97),
            threshold: Some(0.8),
            unit: "core",
            decisive: false,
            detail: "thread 7".into(),
        };
        let value = serde_json::to_value(&condition).unwrap();
        assert_eq!(
            value,
            json!({"name": "worker_saturated", "holds": true, "reading": 0.97, "threshold": 0.8, "unit": "core",
                   "decisive": false, "detail": "thread 7"})
        );
    }
}
