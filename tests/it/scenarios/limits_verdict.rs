//! How a fault went, in numbers; and whether the times are what the design says.

use std::fmt;
use std::time::Duration;

use super::limits_chaos::Extent;
use super::limits_faults::{Fault, Noticed};
use super::limits_load::{Sample, statuses};
use super::limits_policy::Policy;

/// A request may be later than its deadline by this.
const LATE: Duration = Duration::from_millis(5);
/// The p99 may grow by this while nobody counts.
const SLOWER: f64 = 1.2;
/// So much of the load has to be answered meanwhile.
const RATE: f64 = 0.95;
/// So soon it has to be over.
const RECOVERY: Duration = Duration::from_millis(500);

/// When what began, since the load did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    /// All was well since then.
    pub(super) from: Duration,
    /// The fault.
    pub(super) begun: Duration,
    /// Its end began.
    pub(super) ended: Duration,
    /// The servers answer again.
    pub(super) back: Duration,
    /// All is well again, as seen by clients.
    pub(super) steady: Duration,
    /// The end.
    pub(super) until: Duration,
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    name: String,
    policy: Policy,
    requests: usize,
    outcomes: String,
    latest: Duration,
    p99_before: Duration,
    p99: Duration,
    /// Answers a second, as a part of those before.
    rate: f64,
    recovery: Option<Duration>,
    /// What is not as the design says; empty when all is.
    pub(super) wrong: Vec<String>,
}

impl Row {
    /// What a route's clients saw of a fault.
    pub(super) fn new(
        (name, fault): (&str, Fault),
        policy: Policy,
        phases: &Phases,
        samples: &[Sample],
        extent: Extent,
    ) -> Row {
        let sent = |from, until| {
            samples
                .iter()
                .filter(move |sample| (from..until).contains(&sample.at))
        };
        let before = sent(phases.from, phases.begun);
        let during = sent(phases.begun, phases.ended);
        let all = sent(phases.begun, phases.until);
        let per_second = |count: usize, time: Duration| count as f64 / time.as_secs_f64().max(1e-9);
        let rate_before = per_second(before.clone().count(), phases.begun - phases.from);
        let rate = per_second(during.clone().count(), phases.ended - phases.begun) / rate_before;
        // Where nothing else than failing tells that it goes on.
        let recovery = policy.fails().map(|status| {
            let failed = all.clone().filter(|sample| sample.status == status);
            let last = failed.map(|sample| sample.at + sample.took).max();
            last.unwrap_or_default().saturating_sub(phases.back)
        });
        let latest = all.clone().map(|sample| sample.took).max();
        let mut row = Row {
            name: name.to_owned(),
            policy,
            requests: all.clone().count(),
            outcomes: outcomes(all),
            latest: latest.unwrap_or_default(),
            p99_before: p99(before),
            p99: p99(during),
            rate,
            recovery,
            wrong: Vec::new(),
        };
        if extent.timed {
            row.judge(fault, extent);
        }
        row
    }

    fn judge(&mut self, fault: Fault, extent: Extent) {
        let wrong = &mut self.wrong;
        if self.latest > extent.deadline + LATE {
            wrong.push("late".to_owned());
        }
        // A slow server that is in time is waited for, by everybody.
        let slow =
            matches!(fault, Fault::Slow(_)) && fault.noticed(extent.deadline) != Noticed::Away;
        if !slow && self.p99 > self.p99_before.mul_f64(SLOWER) {
            wrong.push("p99".to_owned());
        }
        if self.rate < RATE {
            wrong.push("rate".to_owned());
        }
        if self.recovery.is_some_and(|recovery| recovery > RECOVERY) {
            wrong.push("recovery".to_owned());
        }
    }

    /// The names of the columns.
    pub(super) const COLUMNS: [&str; 10] = [
        "fault",
        "limit",
        "requests",
        "outcomes",
        "latest ms",
        "p99 ms before",
        "p99 ms",
        "rate",
        "recovery ms",
        "verdict",
    ];

    /// Its cells.
    pub(super) fn cells(&self) -> [String; 10] {
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        [
            self.name.clone(),
            self.policy.name().to_owned(),
            self.requests.to_string(),
            self.outcomes.clone(),
            ms(self.latest),
            ms(self.p99_before),
            ms(self.p99),
            format!("{:.2}", self.rate),
            self.recovery.map_or_else(|| "-".to_owned(), ms),
            if self.wrong.is_empty() {
                "pass".to_owned()
            } else {
                format!("FAIL: {}", self.wrong.join(", "))
            },
        ]
    }
}

fn outcomes<'a>(samples: impl Iterator<Item = &'a Sample>) -> String {
    let each = statuses(samples).into_iter();
    let each = each.map(|(status, count)| format!("{status}: {count}"));
    each.collect::<Vec<_>>().join(", ")
}

fn p99<'a>(samples: impl Iterator<Item = &'a Sample>) -> Duration {
    let mut took: Vec<Duration> = samples.map(|sample| sample.took).collect();
    took.sort_unstable();
    let at = (took.len() * 99 / 100).min(took.len().saturating_sub(1));
    took.get(at).copied().unwrap_or_default()
}

/// A table as Markdown has it.
pub(super) struct Table<'a>(pub(super) &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = Row::COLUMNS.map(str::to_owned);
        let rows: Vec<[String; 10]> = self.0.iter().map(Row::cells).collect();
        let width = |at: usize| {
            let all = rows.iter().chain([&head]);
            all.map(|row| row[at].chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; 10] = std::array::from_fn(width);
        let mut line = |cells: &[String; 10]| -> fmt::Result {
            for (cell, width) in cells.iter().zip(widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")
        };
        line(&head)?;
        line(&widths.map(|width| "-".repeat(width)))?;
        rows.iter().try_for_each(line)
    }
}
