//! Views: the three weights of a profile, and which part of one is looked at.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use throughline_profile::{
    CaptureKind, Ledger, LuaContext, OffCpu, Profile, Sample, SampleKind, StackId, SwitchReason,
};

/// What a flame graph weighs. The weights are never summed across views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Running threads; weight: samples.
    #[default]
    OnCpu,
    /// Threads that wait for a result or for a core; weight: nanoseconds off the core.
    OffCpu,
    /// Threads that wait for work (epoll, accept, an idle pool thread); weight: nanoseconds.
    OffCpuIdle,
}

impl View {
    /// All views, in the order of the page's switch.
    pub const ALL: [Self; 3] = [Self::OnCpu, Self::OffCpu, Self::OffCpuIdle];

    /// The weight of a sample in this view; `None` when it belongs to another.
    pub(crate) fn weigh(self, sample: &Sample) -> Option<u64> {
        match (self, sample.kind) {
            (Self::OnCpu, SampleKind::OnCpu) => Some(1),
            (Self::OffCpu, SampleKind::OffCpu(off)) if !off.idle => Some(off.duration.0),
            (Self::OffCpuIdle, SampleKind::OffCpu(off)) if off.idle => Some(off.duration.0),
            _ => None,
        }
    }

    /// Whether the weight is time rather than a count.
    pub(crate) fn is_time(self) -> bool {
        self != Self::OnCpu
    }

    /// What a share is a share of: "14,841 *on-CPU samples*".
    pub(crate) fn denominator(self) -> &'static str {
        match self {
            Self::OnCpu => "on-CPU samples",
            Self::OffCpu => "off-CPU time",
            Self::OffCpuIdle => "idle time",
        }
    }

    /// Whether the capture looked for this at all, as opposed to finding none.
    pub(crate) fn recorded(self, profile: &Profile) -> bool {
        let kind = match self {
            Self::OnCpu => CaptureKind::OnCpu,
            Self::OffCpu | Self::OffCpuIdle => CaptureKind::OffCpu,
        };
        profile.capture.kinds.contains(&kind)
    }

    /// The ledger that speaks of this view's samples: its kind's own, else the one for all.
    pub(crate) fn ledger(self, profile: &Profile) -> &Ledger {
        let own = self.own_ledger(profile);
        if is_used(own) { own } else { &profile.ledger }
    }

    /// Whether that ledger counts on-CPU and off-CPU samples together.
    pub(crate) fn ledger_is_of_all(self, profile: &Profile) -> bool {
        profile.capture.kinds.len() > 1 && !is_used(self.own_ledger(profile))
    }

    fn own_ledger(self, profile: &Profile) -> &Ledger {
        match self {
            Self::OnCpu => &profile.capture.ledger_on_cpu,
            Self::OffCpu | Self::OffCpuIdle => &profile.capture.ledger_off_cpu,
        }
    }
}

/// A ledger in which nothing was ever taken belongs to a capture that kept none.
fn is_used(ledger: &Ledger) -> bool {
    ledger.taken > 0 || ledger.kept > 0
}

/// One view of a profile, as the page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewPlan {
    /// What is weighed.
    pub view: View,
    /// Labels from the root (inverted: from the innermost frame) to the frame that fills the width.
    pub zoom: Vec<String>,
    /// Regular expression over labels. The SVG marks what it matches; folded text keeps only stacks
    /// with a match. Without a capital letter it ignores case.
    pub search: Option<String>,
    /// Innermost frames at the top, their callers below.
    pub inverted: bool,
}

impl ViewPlan {
    /// The compiled search.
    pub(crate) fn pattern(&self) -> Result<Option<Regex>, ViewError> {
        let Some(text) = self.search.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        RegexBuilder::new(text)
            .case_insensitive(!text.chars().any(char::is_uppercase))
            .build()
            .map(Some)
            .map_err(ViewError::Search)
    }
}

/// Why a view cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The search is not a regular expression.
    #[error("the search is not a regular expression: {0}")]
    Search(#[source] regex::Error),
    /// The profile has no such path of frames.
    #[error("no frame \"{label}\" at level {level} of the zoom path in this view")]
    NoSuchPath {
        /// The label that was not found.
        label: String,
        /// Its place in the path, from 1.
        level: usize,
    },
}

/// Number and weight of some samples.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Amount {
    pub samples: u64,
    pub weight: u64,
}

impl Amount {
    fn add(&mut self, weight: u64) {
        self.samples += 1;
        self.weight = self.weight.saturating_add(weight);
    }
}

/// The samples of one view, summed by stack and by what the page says of them.
pub(crate) struct Weighed {
    pub by_stack: Vec<u64>,
    pub without_stack: u64,
    pub all: Amount,
    /// Samples in which no Lua frame is, by reason.
    pub without_lua: BTreeMap<&'static str, Amount>,
    pub with_lua: Amount,
    /// Off-CPU stretches that another thread's turn caused.
    pub preempted: Amount,
    /// Time after the wakeup, in the run queue, ns.
    pub runnable_ns: u64,
}

impl Weighed {
    pub fn new(profile: &Profile, view: View) -> Self {
        let mut weighed = Self {
            by_stack: vec![0; profile.stacks.len()],
            without_stack: 0,
            all: Amount::default(),
            without_lua: BTreeMap::new(),
            with_lua: Amount::default(),
            preempted: Amount::default(),
            runnable_ns: 0,
        };
        for sample in profile.samples.iter() {
            if let Some(weight) = view.weigh(sample) {
                weighed.add(sample, weight);
            }
        }
        weighed
    }

    fn add(&mut self, sample: &Sample, weight: u64) {
        self.all.add(weight);
        let slot = match sample.stack {
            Some(StackId(id)) => self.by_stack.get_mut(id as usize),
            None => None,
        };
        let slot = slot.unwrap_or(&mut self.without_stack);
        *slot = slot.saturating_add(weight);
        match sample.lua {
            LuaContext::With => self.with_lua.add(weight),
            other => self
                .without_lua
                .entry(other.as_str())
                .or_default()
                .add(weight),
        }
        if let SampleKind::OffCpu(OffCpu {
            reason, runnable, ..
        }) = sample.kind
        {
            if reason == SwitchReason::Preempted {
                self.preempted.add(weight);
            }
            let runnable = runnable.unwrap_or_default().0;
            self.runnable_ns = self.runnable_ns.saturating_add(runnable);
        }
    }
}
