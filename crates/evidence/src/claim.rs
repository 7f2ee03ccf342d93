//! Statements, and what they rest on.

use serde::Serialize;

/// One statement of a result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// A sentence.
    pub statement: String,
    /// What it rests on.
    pub support: Support,
    /// What its figures are shares of. Figures with different denominators are never combined.
    pub denominator: Denominator,
}

/// What a statement rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// Read from the system.
    Measured,
    /// Follows from measured readings by a rule that the result names.
    Inferred,
    /// Taken for granted.
    Assumed,
}

/// The whole that a share is of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Denominator {
    /// Which whole: `window_ns`, `samples`, `lua_context`, ...
    pub name: String,
    /// Its size, in the unit its name ends with.
    pub value: f64,
}

/// What a result does not prove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Boundary(pub String);
