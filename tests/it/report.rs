//! Arguments, counting, and the lines that people and `cargo test` users expect.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run::Outcome;

/// Cases that run at the same time unless `-j` says otherwise: they mostly wait.
const PARALLEL: usize = 6;

/// The command line.
pub(crate) struct Arguments {
    /// Only names that contain one of these; none means all.
    texts: Vec<String>,
    /// `-j`.
    pub(crate) parallel: usize,
    /// `--list`.
    pub(crate) list: bool,
    scenarios: bool,
    /// `--lanes SECONDS`: nothing but hostile bytes through both lanes, for so long.
    pub(crate) lanes: Option<u64>,
    /// `--chaos`: nothing but limits whose servers fail, for long, with times.
    pub(crate) chaos: bool,
    /// `--seed N`: where that begins.
    pub(crate) seed: Option<u64>,
}

impl Arguments {
    /// Reads them; `--test-threads`, `--nocapture` and the like of `cargo test` are understood or ignored.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut out = Arguments {
            texts: Vec::new(),
            parallel: PARALLEL,
            list: false,
            scenarios: true,
            lanes: None,
            chaos: false,
            seed: None,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "-j" | "--test-threads" => {
                    let n = words.next().context("-j needs a number")?;
                    out.parallel = n.parse().with_context(|| format!("-j {n}"))?;
                }
                "--lanes" | "--seed" => {
                    let n = words
                        .next()
                        .with_context(|| format!("{word} needs a number"))?;
                    let n = n.parse().with_context(|| format!("{word} {n}"))?;
                    let to = if word == "--seed" {
                        &mut out.seed
                    } else {
                        &mut out.lanes
                    };
                    *to = Some(n);
                }
                "--list" => out.list = true,
                "--chaos" => out.chaos = true,
                "--no-scenarios" => out.scenarios = false,
                "--nocapture" | "--no-capture" | "--quiet" | "-q" | "--include-ignored" => {}
                flag if flag.starts_with('-') => bail!("unknown argument {flag}"),
                _ => out.texts.push(word),
            }
        }
        out.parallel = out.parallel.max(1);
        Ok(out)
    }

    /// Whether a test is to run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        (self.scenarios || !name.starts_with("scenarios: "))
            && (self.texts.is_empty() || self.texts.iter().any(|text| name.contains(text)))
    }
}

/// What ran and how it went.
pub(crate) struct Report {
    start: Instant,
    engine: String,
    passed: usize,
    failed: Vec<String>,
    filtered: usize,
}

impl Report {
    /// Nothing ran yet.
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Report {
            start,
            engine: String::new(),
            passed: 0,
            failed: Vec::new(),
            filtered: 0,
        }
    }

    /// Names the engine of the tests that follow.
    pub(crate) fn engine(&mut self, name: &str) {
        self.engine = if name.is_empty() {
            String::new()
        } else {
            format!(" [{name}]")
        };
    }

    /// Adds tests that were not chosen.
    pub(crate) fn filtered(&mut self, n: usize) {
        self.filtered += n;
    }

    /// The outcomes of a case; an error fails the case as a whole.
    pub(crate) fn case(
        &mut self,
        arguments: &Arguments,
        file: &str,
        outcomes: Result<Vec<Outcome>>,
    ) {
        match outcomes {
            Err(error) => self.count(&format!("{file}: set-up"), &[format!("{error:#}")]),
            Ok(outcomes) => {
                for outcome in outcomes {
                    self.add(
                        arguments,
                        &format!("{file}: {}", outcome.name),
                        &outcome.wrong,
                    );
                }
            }
        }
    }

    /// One test. A step that ran only because a later one was chosen is not counted.
    pub(crate) fn add(&mut self, arguments: &Arguments, name: &str, wrong: &[String]) {
        if arguments.wants(name) {
            self.count(name, wrong);
        }
    }

    fn count(&mut self, name: &str, wrong: &[String]) {
        if wrong.is_empty() {
            self.passed += 1;
            return;
        }
        let name = format!("{name}{}", self.engine);
        println!("test {name} ... FAILED");
        for line in wrong {
            println!("    {}", line.replace('\n', "\n    "));
        }
        self.failed.push(name);
    }

    /// Whether nothing failed so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.failed.is_empty()
    }

    /// The last line, and the exit status.
    pub(crate) fn finish(self) -> ExitCode {
        if !self.failed.is_empty() {
            println!("\nfailures:\n    {}\n", self.failed.join("\n    "));
        }
        println!(
            "test result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; \
             finished in {:.2}s",
            if self.failed.is_empty() {
                "ok"
            } else {
                "FAILED"
            },
            self.passed,
            self.failed.len(),
            self.filtered,
            self.start.elapsed().as_secs_f64()
        );
        if self.failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(101)
        }
    }
}
