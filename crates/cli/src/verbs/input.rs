//! Reading a capture out of a case.

use std::path::Path;

use anyhow::Result;
use throughline_profile::Profile;
use throughline_store::{Case, Damage, Loaded, StoreError};

use crate::args::CaptureArgs;
use crate::failure::{self, Outcome};
use crate::output::Voice;

/// Loads the capture that was asked for.
pub fn load(args: &CaptureArgs) -> Result<Loaded> {
    load_of(&args.case, args.capture)
}

/// Loads one capture of a case; the newest without a number.
pub fn load_of(case: &Path, capture: Option<u32>) -> Result<Loaded> {
    Ok(Case::open_read_only(case)?.load(capture)?)
}

/// A result of a capture; that there are too few data for one is the damage's doing where there is damage.
pub fn or_damage<T, E: Into<anyhow::Error>>(
    result: Result<T, E>,
    case: &Path,
    damage: &Damage,
) -> Result<T> {
    result.map_err(|error| {
        let error = error.into();
        if damage.is_empty() || !failure::is_too_few_data(&error) {
            return error;
        }
        StoreError::Damaged {
            path: case.to_owned(),
            what: format!("{damage}; of the rest: {error}"),
        }
        .into()
    })
}

/// Says on standard error what to know of a capture before its figures are read; the outcome of a verb that could use it.
pub fn remarks(profile: &Profile, damage: &Damage, voice: Voice) -> Outcome {
    if !damage.is_empty() {
        // Not a remark that -q silences: the result is made of what was left.
        Voice {
            quiet: false,
            ..voice
        }
        .remark(&format!(
            "throughline: the case is damaged, and what could not be used was left out: {damage}"
        ));
        return Outcome::Damaged;
    }
    for warning in &profile.capture.warnings {
        voice.remark(&format!("note: {}", throughline_profile::escape(warning)));
    }
    Outcome::Done
}
