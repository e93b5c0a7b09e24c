//! Commands that speak to a running gateway through its Admin API: `plan`, `apply`, `history`,
//! `rollback`, `confirm`, `limits`. `plan` also compares two files, without a gateway.
#![allow(clippy::print_stdout)] // These commands are there to print.

mod client;
mod file;
mod limits;
mod offline;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use lockgate_plugin::Problems;
use serde_json::{Map, Value, json};

use crate::changes::Format;
use client::{Client, Failed};
use file::Read;
pub use limits::{Limits, limits};

/// Which gateway, and how to answer.
#[derive(Clone, Debug, clap::Args)]
pub struct Gateway {
    /// The settings of the gateway: they say where its Admin API is, and its key.
    #[arg(short, long, global = true, default_value = "conf/config.yaml")]
    config: PathBuf,
    /// The Admin API instead: `http://127.0.0.1:9180`.
    #[arg(long, global = true, value_name = "URL")]
    admin: Option<String>,
    /// A file with the key for the Admin API. Without it: the environment's LOCKGATE_ADMIN_KEY; and to
    /// this machine or the address in the settings, their key, or the one made at the first start.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A file with the certificate that the Admin API's is signed by, with https.
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// How a whole configuration is written.
#[derive(Clone, Debug, clap::Args)]
pub struct Layout {
    /// The layout of a whole configuration, where its shape does not tell: `apisix` (apisix.yaml) or
    /// `adc` (ADC's file).
    #[arg(long, value_parser = layout)]
    format: Option<Format>,
}

fn layout(name: &str) -> Result<Format, String> {
    Format::named(name).ok_or_else(|| "expected `apisix` or `adc`".to_owned())
}

/// `lockgate plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// An order (`changes:`, `resources:`), or a whole configuration as in apisix.yaml or ADC's file;
    /// `-` reads JSON or YAML from standard input.
    #[arg(required_unless_present_all = ["from", "to"], conflicts_with_all = ["from", "to"])]
    file: Option<PathBuf>,
    /// Compares two files instead, without a gateway: the configuration so far.
    #[arg(long, requires = "to")]
    from: Option<PathBuf>,
    /// Compares two files instead, without a gateway: the configuration to be.
    #[arg(long, requires = "from")]
    to: Option<PathBuf>,
    /// Requests to try, one a line: `GET http://shop.test/cart`, or JSON with `url` and any of
    /// `method`, `headers`, `from`, `sni`, `consumer`, `body`. Without it, those that the gateway saw
    /// lately.
    #[arg(long)]
    requests: Option<PathBuf>,
    #[command(flatten)]
    layout: Layout,
    #[command(flatten)]
    gateway: Gateway,
}

/// `lockgate apply`.
#[derive(Clone, Debug, clap::Args)]
pub struct Apply {
    /// As for `lockgate plan`.
    file: PathBuf,
    #[command(flatten)]
    layout: Layout,
    /// The revision that was looked at, as a plan says it: refused when something has changed since.
    #[arg(long)]
    expect: Option<u64>,
    /// Why, for the history.
    #[arg(long)]
    comment: Option<String>,
    /// Goes back by itself unless `lockgate confirm` is called within so many seconds.
    #[arg(long, value_name = "SECONDS")]
    confirm_within: Option<u64>,
    /// Before that, goes back when the share of 5xx of the changed routes rises by more than so many
    /// percentage points.
    #[arg(long, value_name = "POINTS", requires = "confirm_within")]
    error_rise: Option<f64>,
    #[command(flatten)]
    gateway: Gateway,
}

/// `lockgate history`.
#[derive(Clone, Debug, clap::Args)]
pub struct History {
    /// One change, field by field.
    revision: Option<u64>,
    #[command(flatten)]
    gateway: Gateway,
}

/// `lockgate rollback`.
#[derive(Clone, Debug, clap::Args)]
pub struct Rollback {
    /// The revision to go back to: everything is as it was right after that change.
    #[arg(required_unless_present = "undo", conflicts_with = "undo")]
    revision: Option<u64>,
    /// Takes this one change back instead, and leaves later ones.
    #[arg(long, value_name = "REVISION")]
    undo: Option<u64>,
    /// Why, for the history.
    #[arg(long)]
    comment: Option<String>,
    /// As for `lockgate apply`.
    #[arg(long)]
    expect: Option<u64>,
    #[command(flatten)]
    gateway: Gateway,
}

/// `lockgate confirm`.
#[derive(Clone, Debug, clap::Args)]
pub struct Confirm {
    /// Only if this is the change that waits.
    revision: Option<u64>,
    #[command(flatten)]
    gateway: Gateway,
}

/// What a command comes to.
type Done = Result<Value, Failed>;

/// Says what would change.
pub fn plan(args: &Plan) -> ExitCode {
    let done = match (&args.from, &args.to, &args.file) {
        (Some(from), Some(to), _) => {
            let requests = args.requests.as_deref();
            offline::plan(&args.gateway.config, from, to, requests, args.layout.format)
        }
        (_, _, Some(file)) => planned(args, file),
        _ => Err(Failed::Text("give a file, or --from and --to".to_owned())),
    };
    let hint = args.file.as_ref().map(|file| file.display().to_string());
    finish(args.gateway.json, done, |done| {
        show::plan(done, hint.as_deref())
    })
}

fn planned(args: &Plan, path: &std::path::Path) -> Done {
    let read = Read::order(path, args.layout.format)?;
    let mut order = read.order.clone();
    if let Some(requests) = &args.requests {
        order.insert("requests".to_owned(), json!(file::lines(requests)?));
    }
    let client = Client::new(&args.gateway)?;
    let done = client.ask("POST", "plan", Some(&Value::Object(order)));
    done.map_err(|failed| read.located(failed))
}

/// Changes everything in a file at once.
pub fn apply(args: &Apply) -> ExitCode {
    let done = || {
        let read = Read::order(&args.file, args.layout.format)?;
        let mut order = read.order.clone();
        put(
            &mut order,
            "expected_revision",
            args.expect.map(Value::from),
        );
        put(
            &mut order,
            "comment",
            args.comment.as_deref().map(Value::from),
        );
        let confirm = args.confirm_within.map(|seconds| {
            let mut confirm = Map::new();
            put(&mut confirm, "within_seconds", Some(seconds.into()));
            put(
                &mut confirm,
                "error_rise_percent",
                args.error_rise.map(Value::from),
            );
            Value::Object(confirm)
        });
        put(&mut order, "confirm", confirm);
        let client = Client::new(&args.gateway)?;
        let done = client.ask("POST", "apply", Some(&Value::Object(order)));
        done.map_err(|failed| read.located(failed))
    };
    finish(args.gateway.json, done(), show::applied)
}

/// Lists what was changed, or shows one change.
pub fn history(args: &History) -> ExitCode {
    let done = || {
        let client = Client::new(&args.gateway)?;
        match args.revision {
            Some(revision) => client.ask("GET", &format!("history/{revision}"), None),
            None => {
                let mut all = client.ask("GET", "history", None)?;
                all["waits"] = client.ask("GET", "confirm", None)?["waits"].take();
                Ok(all)
            }
        }
    };
    match args.revision {
        Some(_) => finish(args.gateway.json, done(), show::change),
        None => finish(args.gateway.json, done(), show::history),
    }
}

/// Goes back.
pub fn rollback(args: &Rollback) -> ExitCode {
    let done = || {
        let mut body = Map::new();
        put(&mut body, "to", args.revision.map(Value::from));
        put(&mut body, "undo", args.undo.map(Value::from));
        put(
            &mut body,
            "comment",
            args.comment.as_deref().map(Value::from),
        );
        put(&mut body, "expected_revision", args.expect.map(Value::from));
        Client::new(&args.gateway)?.ask("POST", "rollback", Some(&Value::Object(body)))
    };
    finish(args.gateway.json, done(), show::applied)
}

/// Lets what waits stay.
pub fn confirm(args: &Confirm) -> ExitCode {
    let done = || {
        let mut body = Map::new();
        put(&mut body, "revision", args.revision.map(Value::from));
        Client::new(&args.gateway)?.ask("POST", "confirm", Some(&Value::Object(body)))
    };
    finish(args.gateway.json, done(), show::confirmed)
}

fn put(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value);
    }
}

/// Prints what came of it.
fn finish(json: bool, done: Done, text: impl FnOnce(&Value) -> String) -> ExitCode {
    match done {
        Ok(done) if json => println!("{done:#}"),
        Ok(done) => print!("{}", text(&done)),
        Err(Failed::Refused(answer)) if json => {
            println!("{answer:#}");
            return ExitCode::FAILURE;
        }
        Err(failed) => {
            print!("{}", show::failed(&failed));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

impl From<Problems> for Failed {
    fn from(problems: Problems) -> Failed {
        Failed::Problems(problems)
    }
}
