//! Configuration files from bytes to a snapshot: references to the environment, YAML or JSON, the
//! layout, every resource with its plugins, compilation. Also `config.yaml`.
//!
//! A first byte `{` or `[` means JSON. `#END` is added, so that YAML need not end with it.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use lockgate::config::catalogue::Catalogue;
use lockgate::config::compile::instance::Workshop;
use lockgate::config::graph::{Applied, Graph};
use lockgate::config::source::Batch;
use lockgate::config::source::file::{FileSource, Format};
use lockgate::document::read_yaml;
use lockgate::router::Mode;
use lockgate::settings;
use lockgate_plugin::{Problem, Shared, StateStore};
use lockgate_plugins::observe::prometheus::{Families, Metrics, Options};
use lockgate_plugins::transform::redirect::TlsPorts;
use serde_json::Value;

/// Shared by all executions: it is large, and the same whatever is read.
static METRICS: LazyLock<Arc<Metrics>> =
    LazyLock::new(|| Arc::new(Metrics::with(&Options::default(), &Families::default())));

fuzz_target!(|data: &[u8]| {
    let text = [data, b"\n#END"].concat();
    let (bytes, format) = match data.first() {
        Some(b'{' | b'[') => (data, Format::Json),
        _ => (text.as_slice(), Format::Yaml),
    };
    let lines = bytes.split(|&b| b == b'\n' || b == b'\r').count();
    // A text of comments only has no places.
    let nothing = read_yaml(bytes, "").is_ok_and(|document| document.place("").is_none());
    let placed = |problem: &Problem| {
        let place = problem.place.map(|(line, column)| (line as usize, column));
        assert!(
            place.map_or(nothing, |(line, column)| (1..=lines + 1).contains(&line)
                && column > 0),
            "without a place in {lines} lines: {problem}"
        );
        assert!(problem.file.is_some(), "without a file: {problem}");
    };

    match FileSource::new(Path::new("apisix.yaml"), format, env).parse(bytes) {
        Err(problems) => {
            assert!(!problems.is_empty());
            problems.iter().for_each(placed);
        }
        Ok(batch) => {
            batch.warnings.iter().for_each(placed);
            resources(&batch, placed);
        }
    }

    let names: Vec<&str> = lockgate_plugins::ALL.iter().map(|def| def.name).collect();
    let path = Path::new("conf/config.yaml");
    match settings::parse(data, path, &|name| env(name), &names) {
        Ok((_, warnings)) => warnings.iter().for_each(placed),
        Err(problems) => problems.iter().for_each(placed),
    }
});

fn env(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("1980".to_owned()),
        "TEXT" => Some("{a: [b".to_owned()),
        _ => None,
    }
}

fn resources(batch: &Batch, placed: impl Fn(&Problem)) {
    let mut graph = graph();
    let mut applied = apply(&mut graph, batch);
    batch.locate(&mut applied.problems);
    batch.locate(&mut applied.warnings);
    applied
        .problems
        .iter()
        .chain(applied.warnings.iter())
        .for_each(placed);
    assert!(graph.len() <= batch.resources.len());
    let lines = graph.snapshot().router.dump();

    // What was taken is taken already; what was refused is refused again.
    let again = apply(&mut graph, batch);
    assert!(
        again.changed.is_empty(),
        "{:?} changed twice",
        again.changed
    );
    assert_eq!(again.problems.len(), applied.problems.len());
    assert_eq!(graph.snapshot().router.dump(), lines);
}

fn apply(graph: &mut Graph, batch: &Batch) -> Applied {
    let changes = graph.difference(batch.wanted());
    graph.apply(changes)
}

fn graph() -> Graph {
    let mut shared = Shared::default();
    shared.insert(Arc::clone(&METRICS));
    shared.insert(Arc::new(TlsPorts(vec![9443])));
    let workshop = Workshop {
        catalogue: Catalogue::everything(lockgate_plugins::ALL),
        shared,
        states: StateStore::default(),
        attr: Value::Null,
        metadata: Default::default(),
    };
    Graph::new(workshop, Mode::HostUri, None)
}
