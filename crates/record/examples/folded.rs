//! Records processes and prints folded stacks: `folded SECONDS RATE PID...`, for looking at the recorder alone.

use std::collections::BTreeMap;
use std::time::Duration;

use throughline_profile::{Capture, Profile, SampleKind};
use throughline_record::{Keeper, Progress, RecordPlan, record};

#[derive(Default)]
struct Fold {
    stacks: BTreeMap<String, u64>,
    contexts: BTreeMap<String, u64>,
}

impl Keeper for Fold {
    fn flush(
        &mut self,
        profile: &mut Profile,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        for sample in profile.samples.drain() {
            let (prefix, weight) = match sample.kind {
                SampleKind::OnCpu => ("on", 1),
                SampleKind::OffCpu(off) => ("off", off.duration.0 / 1000),
            };
            *self
                .contexts
                .entry(format!("{prefix} {}", sample.lua.as_str()))
                .or_default() += 1;
            let mut names: Vec<String> = sample
                .stack
                .map(|stack| {
                    profile
                        .stacks
                        .frames_leaf_first(stack)
                        .map(|f| {
                            let frame = profile.frames.get(f);
                            format!("{}:{}", profile.strings.get(frame.name), frame.line)
                        })
                        .collect()
                })
                .unwrap_or_default();
            names.push(format!("{prefix} flags={}", sample.flags.0));
            names.reverse();
            *self.stacks.entry(names.join(";")).or_default() += weight;
        }
        Ok(())
    }
    fn go_on(&mut self, _: Progress) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u32> = std::env::args()
        .skip(1)
        .map(|a| a.parse())
        .collect::<Result<_, _>>()?;
    let plan = RecordPlan {
        duration: Some(Duration::from_secs(arguments[0].into())),
        rate_hz: arguments[1],
        pids: arguments[2..].to_vec(),
        beyond_safe: true,
        ..RecordPlan::default()
    };
    let mut fold = Fold::default();
    let recorded = record(&plan, Capture::default(), &mut fold)?;
    let mut stacks: Vec<_> = fold.stacks.into_iter().collect();
    stacks.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    for (stack, weight) in stacks.iter().take(40) {
        eprintln!("{weight} {stack}");
    }
    eprintln!("{:#?}", recorded.profile.capture);
    eprintln!(
        "{:#?}\n{:#?}\n{:?}",
        recorded.profile.ledger, fold.contexts, recorded.threads
    );
    Ok(())
}
