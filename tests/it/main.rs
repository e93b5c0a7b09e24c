//! The integration tests: the real gateway, a real upstream, one line per failure.
//!
//! Three kinds run here: case files (`tests/cases`, format in its README), runs of `lockgate check`, and scenarios
//! in Rust for what a file cannot say (signals, upgrades, load). Before all that the runner checks itself.
//!
//! `cargo test --test it -- [TEXT ...] [-j N] [--list] [--no-scenarios]`, or for a while nothing but hostile bytes
//! (`scenarios/lanes.rs`): `cargo test --test it -- --lanes SECONDS [--seed N]`, or limits whose servers fail, with times
//! (`scenarios/limits_chaos.rs`): `cargo test --test it -- --chaos [TEXT ...]`

#![allow(
    clippy::print_stdout,
    reason = "a test harness reports on standard output"
)]

mod case;
mod certs;
mod check;
mod client;
mod differences;
mod expect;
mod gateway;
mod live;
mod place;
mod ports;
mod report;
mod run;
mod scenarios;
mod selfcheck;
mod step;
mod upstream;
mod value;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::case::Case;
use crate::certs::Certs;
use crate::differences::Differences;
use crate::gateway::Setup;
use crate::live::Live;
use crate::place::Places;
use crate::ports::Ports;
use crate::report::{Arguments, Report};
use crate::run::{Outcome, Run};
use crate::scenarios::lanes::Extent;
use crate::upstream::{LABELS, Upstreams};

/// Shared cases go into the gateway in groups, so that reload runs among many neighbours.
const GROUP: usize = 12;

/// What every test needs.
pub(crate) struct World {
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) certs: Arc<Certs>,
    pub(crate) ports: Ports,
    /// Folders of gateways go below; removed at the end unless something failed.
    pub(crate) root: PathBuf,
    /// Merged into every config.yaml: the engine under test.
    pub(crate) engine: Value,
}

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::from(101)
        }
    }
}

fn start() -> Result<ExitCode> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    selfcheck::run()?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let cases = case::load_all(&tests.join("cases"))?;
    if arguments.list {
        for name in names(&cases) {
            if arguments.wants(&name) {
                println!("{name}: test");
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if let Some(seconds) = arguments.lanes {
        return runtime.block_on(lanes(seconds, arguments.seed));
    }
    if arguments.chaos {
        return runtime.block_on(chaos(&arguments));
    }
    let mut report = Report::new();
    let known = tests.join("known-differences.yaml");
    let differences = Differences::load(&known, &cases)?;
    let engines = std::env::var("LOCKGATE_ENGINE").unwrap_or_else(|_| "auto,general".to_owned());
    for engine in engines.split(',').map(str::trim) {
        let cases = differences.apply(engine, &cases);
        runtime.block_on(all(&arguments, &cases, engine, &mut report))?;
    }
    Ok(report.finish())
}

fn names(cases: &[Case]) -> Vec<String> {
    let mut out = Vec::new();
    for case in cases {
        for step in &case.steps {
            let name = step.get("name").and_then(Value::as_str).unwrap_or_default();
            out.push(format!("{}: {name}", case.file));
        }
        out.extend(
            case.checks
                .iter()
                .map(|check| format!("{}: {}", case.file, check.name)),
        );
    }
    out.extend(
        scenarios::ALL
            .iter()
            .map(|(name, _)| format!("scenarios: {name}")),
    );
    out
}

/// The setting that chooses an engine; no name leaves the choice to the gateway.
fn engine_setting(engine: &str) -> Value {
    match engine {
        "" => json!({}),
        name => json!({ "lockgate": { "engine": name } }),
    }
}

/// Hostile bytes through both lanes for some seconds, from a seed of its own unless one is given.
async fn lanes(seconds: u64, seed: Option<u64>) -> Result<ExitCode> {
    let world = World::new("lanes", json!({})).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let extent = Extent {
        time: Some(Duration::from_secs(seconds)),
        seed: seed.unwrap_or(now.as_secs()),
    };
    println!("lanes: seed {}, {seconds} s", extent.seed);
    let outcome = scenarios::lanes::run(&world, extent).await;
    // Left-over folders are a nuisance, not a failure.
    let _ = std::fs::remove_dir_all(&world.root);
    Ok(match outcome {
        Ok(counts) => {
            println!("{counts}\nlanes: nothing found");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("lanes: {error:#}");
            ExitCode::from(101)
        }
    })
}

/// Limits whose servers fail.
async fn chaos(arguments: &Arguments) -> Result<ExitCode> {
    let world = Arc::new(World::new("chaos", engine_setting("auto")).await?);
    let outcome =
        scenarios::limits_chaos::long(Arc::clone(&world), &|name| arguments.wants(name)).await;
    // Left-over folders are a nuisance, not a failure.
    let _ = std::fs::remove_dir_all(&world.root);
    Ok(match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101),
        Err(error) => {
            println!("chaos: {error:#}");
            ExitCode::from(101)
        }
    })
}

async fn all(
    arguments: &Arguments,
    cases: &[Case],
    engine: &str,
    report: &mut Report,
) -> Result<()> {
    let world = Arc::new(World::new(engine, engine_setting(engine)).await?);
    report.engine(engine);

    let wanted = |case: &&Case| case_wanted(arguments, case);
    let (alone, shared): (Vec<&Case>, Vec<&Case>) = cases
        .iter()
        .filter(wanted)
        .filter(|c| c.checks.is_empty())
        .partition(|c| c.alone);
    report.filtered(
        names(cases)
            .iter()
            .filter(|name| !arguments.wants(name))
            .count(),
    );
    run_shared(&world, &shared, arguments, report).await?;
    run_alone(&world, &alone, arguments, report).await?;
    for case in cases.iter().filter(wanted).filter(|c| !c.checks.is_empty()) {
        for (at, check) in case.checks.iter().enumerate() {
            let dir = world.root.join(format!("{}-check-{at}", case.id));
            let mut places = Places::new(Arc::clone(&world.certs));
            places.set("id", &case.id);
            let wrong = check
                .run(&dir, &places)
                .unwrap_or_else(|e| vec![format!("{e:#}")]);
            report.add(arguments, &format!("{}: {}", case.file, check.name), &wrong);
        }
    }
    for (name, scenario) in scenarios::ALL {
        let name = format!("scenarios: {name}");
        if arguments.wants(&name) {
            let wrong = match scenario(Arc::clone(&world)).await {
                Ok(()) => Vec::new(),
                Err(error) => vec![format!("{error:#}")],
            };
            report.add(arguments, &name, &wrong);
        }
    }
    if report.is_clean() {
        // Left-over folders are a nuisance, not a failure.
        let _ = std::fs::remove_dir_all(&world.root);
    } else {
        println!("folders of the gateways: {}", world.root.display());
    }
    Ok(())
}

fn case_wanted(arguments: &Arguments, case: &Case) -> bool {
    names(std::slice::from_ref(case))
        .iter()
        .any(|name| !name.starts_with("scenarios: ") && arguments.wants(name))
}

/// Cases in one gateway, added group by group.
async fn run_shared(
    world: &Arc<World>,
    cases: &[&Case],
    arguments: &Arguments,
    report: &mut Report,
) -> Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    let setup = world.setup("shared", &json!({}));
    let live = Live::start(setup, "none", Map::new())
        .await
        .context("the shared gateway")?;
    let limit = Arc::new(Semaphore::new(arguments.parallel));
    for group in cases.chunks(GROUP) {
        let mut changes = Vec::new();
        for case in group {
            let places = world.places(case, &live)?;
            let lists = case
                .place(&case.resources, &places)
                .with_context(|| case.file.clone())?;
            changes.push((case.id.clone(), lists));
        }
        if let Err(error) = live.change(changes).await {
            println!("{}", live.gateway.last_lines(40));
            return Err(error.context("adding a group of cases"));
        }
        let mut tasks = JoinSet::new();
        for case in group {
            // A task outlives this borrow of the list; parsing again is cheap.
            let (case, world, live) = ((*case).clone(), Arc::clone(world), Arc::clone(&live));
            let limit = Arc::clone(&limit);
            tasks.spawn(async move {
                let _permit = limit.acquire().await;
                let outcomes = run_case(&world, &case, live).await;
                (case, outcomes)
            });
        }
        while let Some(done) = tasks.join_next().await {
            let (case, outcomes) = done.context("a case panicked")?;
            report.case(arguments, &case.file, outcomes);
        }
    }
    Ok(())
}

/// Cases with a gateway each.
async fn run_alone(
    world: &Arc<World>,
    cases: &[&Case],
    arguments: &Arguments,
    report: &mut Report,
) -> Result<()> {
    let limit = Arc::new(Semaphore::new(arguments.parallel));
    let mut tasks = JoinSet::new();
    for case in cases {
        let (case, world) = ((*case).clone(), Arc::clone(world));
        let limit = Arc::clone(&limit);
        tasks.spawn(async move {
            let _permit = limit.acquire().await;
            let outcomes = match start_alone(&world, &case).await {
                Ok(live) => run_case(&world, &case, live).await,
                Err(error) => Err(error.context("the case's gateway")),
            };
            (case, outcomes)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (case, outcomes) = done.context("a case panicked")?;
        report.case(arguments, &case.file, outcomes);
    }
    Ok(())
}

async fn start_alone(world: &World, case: &Case) -> Result<Arc<Live>> {
    let mut places = Places::new(Arc::clone(&world.certs));
    world.common(&mut places, case)?;
    let config = places.fill(&case.config.clone().unwrap_or_else(|| json!({})))?;
    let lists = case.place(&case.resources, &places)?;
    Live::start(world.setup(&case.id, &config), &case.id, lists).await
}

async fn run_case(world: &World, case: &Case, live: Arc<Live>) -> Result<Vec<Outcome>> {
    let places = world.places(case, &live)?;
    let run = Run {
        case,
        live,
        upstreams: Arc::clone(&world.upstreams),
        places,
    };
    Ok(run.steps().await)
}

impl World {
    /// Upstreams, certificates and a folder with this in its name.
    async fn new(name: &str, engine: Value) -> Result<World> {
        let certs = Arc::new(Certs::new()?);
        let upstreams = Arc::new(Upstreams::start(&certs).await?);
        let root = std::env::temp_dir().join(format!("lockgate-it-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&root)?;
        Ok(World {
            upstreams,
            certs,
            ports: Ports::new(),
            root,
            engine,
        })
    }

    /// The settings of a new gateway in a folder of its own.
    pub(crate) fn setup(&self, name: &str, config: &Value) -> Setup<'_> {
        let mut merged = self.engine.clone();
        value::merge(&mut merged, config);
        Setup {
            ports: &self.ports,
            dir: self.root.join(name),
            config: merged,
            resources: json!({}),
        }
    }

    /// Placeholders that do not depend on a gateway.
    fn common(&self, places: &mut Places, case: &Case) -> Result<()> {
        places.set("id", &case.id);
        places.set("host", &case.host);
        for label in LABELS.iter().chain(&["tls"]) {
            let address = self.upstreams.address(label)?;
            places.set(*label, address.to_string());
            places.set(format!("{label}_port"), address.port().to_string());
        }
        for name in ["dead", "dead2"] {
            places.set(name, format!("127.0.0.1:{}", self.ports.take()?));
        }
        Ok(())
    }

    /// All placeholders of a case.
    fn places(&self, case: &Case, live: &Live) -> Result<Places> {
        let mut places = Places::new(Arc::clone(&self.certs));
        self.common(&mut places, case)?;
        places.set("port", live.gateway.listeners.http.to_string());
        places.set("https_port", live.gateway.listeners.https.to_string());
        Ok(places)
    }
}
