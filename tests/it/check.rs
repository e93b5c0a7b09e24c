//! Runs of `lockgate check` on bad (or good) files: exit status and what is printed.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fancy_regex::Regex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};

use crate::gateway::binary;
use crate::place::Places;
use crate::value::{Fields, text};

/// A check reads files and compiles; it never serves.
const DEADLINE: Duration = Duration::from_secs(20);

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) name: String,
    files: Vec<(String, Value)>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    exit: Option<u64>,
    output: Vec<Regex>,
    not_output: Vec<Regex>,
}

impl Check {
    /// Reads a run, strictly.
    pub(crate) fn parse(value: &Value, path: &str) -> Result<Self> {
        let f = Fields::new(value, path)?;
        let map = |key: &'static str| -> Result<Map<String, Value>> {
            let Some(value) = f.value(key) else {
                return Ok(Map::new());
            };
            value
                .as_object()
                .cloned()
                .with_context(|| format!("{}: expected a map", f.at(key)))
        };
        let config = json!({
            "deployment": { "role": "data_plane", "role_data_plane": { "config_provider": "yaml" } }
        });
        let mut files = vec![
            (
                "config.yaml".to_owned(),
                f.value("config").cloned().unwrap_or(config),
            ),
            (
                "apisix.yaml".to_owned(),
                f.value("apisix").cloned().unwrap_or_else(|| json!({})),
            ),
        ];
        files.extend(map("files")?);
        let mut env = Vec::new();
        for (name, value) in map("env")? {
            env.push((name, text(&value).with_context(|| f.at("env"))?));
        }
        let mut args = f.strings("args")?;
        if args.is_empty() {
            args = ["check", "-c", "${dir}/config.yaml"]
                .map(str::to_owned)
                .to_vec();
        }
        let name = f
            .str("name")?
            .with_context(|| format!("{path}: name is missing"))?;
        let wanted = f
            .value("expect")
            .with_context(|| format!("{path}: expect is missing"))?;
        let wanted = Fields::new(wanted, f.at("expect"))?;
        let check = Check {
            name,
            files,
            args,
            env,
            exit: wanted.number("exit")?,
            output: wanted.regexes("output")?,
            not_output: wanted.regexes("not_output")?,
        };
        wanted.finish()?;
        f.finish()?;
        Ok(check)
    }

    /// Runs it in an empty folder; returns what is wrong.
    pub(crate) fn run(&self, dir: &Path, places: &Places) -> Result<Vec<String>> {
        std::fs::create_dir_all(dir)?;
        let mut places = places.clone();
        places.set("dir", dir.to_string_lossy());
        for (name, content) in &self.files {
            let text = match places.fill(content)? {
                Value::String(text) => text,
                document if name == "apisix.yaml" => {
                    format!("{}#END\n", serde_yaml::to_string(&document)?)
                }
                document => serde_yaml::to_string(&document)?,
            };
            std::fs::write(dir.join(name), text).with_context(|| name.clone())?;
        }
        let args = self
            .args
            .iter()
            .map(|a| places.expand(a))
            .collect::<Result<Vec<_>>>()?;
        let child = Command::new(binary())
            .args(&args)
            .envs(self.env.iter().cloned())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the gateway")?;
        let output = finish(child)?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let mut wrong = Vec::new();
        let exit = output.status.code().and_then(|c| u64::try_from(c).ok());
        if self.exit.is_some() && self.exit != exit {
            wrong.push(format!(
                "exit: wanted {:?}, got {}",
                self.exit, output.status
            ));
        }
        for re in &self.output {
            if !re.is_match(&printed).unwrap_or(false) {
                wrong.push(format!("output: nothing matches {re}"));
            }
        }
        for re in &self.not_output {
            if re.is_match(&printed).unwrap_or(true) {
                wrong.push(format!("output: {re} matches"));
            }
        }
        if !wrong.is_empty() {
            wrong.push(format!("printed: {}", printed.trim_end()));
        }
        Ok(wrong)
    }
}

/// Waits for the end with a deadline; the pipes are drained meanwhile.
fn finish(child: Child) -> Result<Output> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let (done, ended) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        // Nobody listens when the deadline has passed.
        let _ = done.send(child.wait_with_output());
    });
    match ended.recv_timeout(DEADLINE) {
        Ok(output) => Ok(output?),
        Err(_) => {
            kill(pid, Signal::SIGKILL)?;
            bail!("still running after {DEADLINE:?}")
        }
    }
}
