//! Steps for which an engine is known to answer differently: `tests/known-differences.yaml`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::case::Case;
use crate::value::from_yaml;

/// One difference.
struct Difference {
    engine: String,
    case: String,
    step: String,
    expect: Value,
}

/// All of them.
pub(crate) struct Differences(Vec<Difference>);

impl Differences {
    /// Reads the file. Every entry has to say why, and to name a step there is.
    pub(crate) fn load(path: &Path, cases: &[Case]) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let list = from_yaml(&text)?;
        let list = list
            .as_array()
            .context("known-differences.yaml: not a list")?;
        let mut out = Vec::new();
        for (at, item) in list.iter().enumerate() {
            let part = |key: &str| {
                let text = item.get(key).and_then(Value::as_str);
                text.map(str::to_owned)
                    .with_context(|| format!("known-differences.yaml[{at}]: {key} is missing"))
            };
            ensure!(
                !part("why")?.is_empty(),
                "known-differences.yaml[{at}]: why?"
            );
            let found = Difference {
                engine: part("engine")?,
                case: part("case")?,
                step: part("step")?,
                expect: item
                    .get("expect")
                    .cloned()
                    .with_context(|| format!("known-differences.yaml[{at}]: expect is missing"))?,
            };
            let known = cases
                .iter()
                .filter(|case| case.file == found.case)
                .any(|case| case.steps.iter().any(|step| found.is(step)));
            ensure!(
                known,
                "known-differences.yaml[{at}]: there is no step `{}` in {}",
                found.step,
                found.case
            );
            out.push(found);
        }
        Ok(Differences(out))
    }

    /// The cases as an engine is expected to pass them.
    pub(crate) fn apply(&self, engine: &str, cases: &[Case]) -> Vec<Case> {
        let mut cases = cases.to_vec();
        for difference in self.0.iter().filter(|d| d.engine == engine) {
            for case in cases.iter_mut().filter(|case| case.file == difference.case) {
                for step in case.steps.iter_mut().filter(|step| difference.is(step)) {
                    step["expect"] = difference.expect.clone();
                }
            }
        }
        cases
    }
}

impl Difference {
    fn is(&self, step: &Value) -> bool {
        step.get("name").and_then(Value::as_str) == Some(&self.step)
    }
}
