//! `lockgate check`, `lockgate routes`, `lockgate version`: looking without serving.
#![allow(clippy::print_stdout)] // These commands are there to print.

use std::path::Path;
use std::process::ExitCode;

use lockgate_plugin::{Problem, Problems};

use crate::config::graph::Graph;
use crate::config::snapshot::Target;
use crate::gateway;
use crate::load::{Loaded, Purpose, load};
use crate::router::Listed;
use crate::settings::{Settings, SourceKind};
use crate::store::Embedded;

/// Prints every problem of settings and routes.
pub fn check(config: &Path) -> ExitCode {
    let (settings, mut warnings) = match gateway::settings(config) {
        Ok(read) => read,
        Err(problems) => return failed(&[], &problems),
    };
    if let Some(why) = out_of_sight(&settings) {
        print_warnings(&warnings);
        println!("ok: settings; {} {why}", settings.source);
        return ExitCode::SUCCESS;
    }
    match load(&settings, None, None, Purpose::Looking) {
        Ok(Loaded {
            graph,
            rejected,
            warnings: more,
            ..
        }) => {
            warnings.extend(more);
            if !rejected.is_empty() {
                return failed(&warnings, &rejected);
            }
            print_warnings(&warnings);
            println!("ok: {} resources in {}", graph.len(), settings.source);
            ExitCode::SUCCESS
        }
        Err((problems, more)) => {
            warnings.extend(more);
            failed(&warnings, &problems)
        }
    }
}

/// Why a store cannot be looked into. To look must not make one, and what a running process has
/// open was checked by it.
pub(crate) fn out_of_sight(settings: &Settings) -> Option<&'static str> {
    let SourceKind::Embedded(path) = &settings.source else {
        return None;
    };
    if !path.exists() {
        Some("is made at the first start")
    } else if Embedded::is_open(path) {
        Some("is in use by a running process, whose /status/config tells of it")
    } else {
        None
    }
}

fn print_warnings(warnings: &[Problem]) {
    warnings
        .iter()
        .for_each(|warning| println!("warning: {warning}"));
}

pub(crate) fn failed(warnings: &[Problem], problems: &Problems) -> ExitCode {
    print_warnings(warnings);
    problems
        .iter()
        .for_each(|problem| println!("error: {problem}"));
    let plural = if problems.len() == 1 {
        "problem"
    } else {
        "problems"
    };
    println!("{} {plural}", problems.len());
    ExitCode::FAILURE
}

/// Prints the compiled routes.
pub fn routes(config: &Path) -> ExitCode {
    let settings = match gateway::settings(config) {
        Ok((settings, _)) => settings,
        Err(problems) => return failed(&[], &problems),
    };
    match load(&settings, None, None, Purpose::Looking) {
        Ok(loaded) => {
            print_routes(&loaded.graph);
            ExitCode::SUCCESS
        }
        Err((problems, _)) => failed(&[], &problems),
    }
}

fn print_routes(graph: &Graph) {
    let snapshot = graph.snapshot();
    if !snapshot.global.is_empty() {
        println!("global rules");
        snapshot
            .global
            .describe()
            .iter()
            .for_each(|line| println!("    {line}"));
    }
    for Listed { host, uri, entry } in snapshot.router.iter() {
        let route = &entry.value;
        let methods: Vec<&str> = entry.methods.names().collect();
        let methods = if methods.is_empty() {
            "ANY".to_owned()
        } else {
            methods.join(",")
        };
        let target = match &route.target {
            Target::Upstream(upstream) => {
                let shape = upstream.shape();
                let nodes: Vec<String> = shape
                    .spec
                    .nodes
                    .iter()
                    .map(|node| format!("{}:{} ({})", node.host, node.port, node.weight))
                    .collect();
                format!(
                    "{} {}://[{}]",
                    upstream.key,
                    shape.spec.scheme.name(),
                    nodes.join(", ")
                )
            }
            Target::None => "no upstream".to_owned(),
            Target::MissingUpstream => "upstream missing (502)".to_owned(),
            Target::MissingService => "service missing (404)".to_owned(),
            Target::MissingPluginConfig => "plugin_config missing (503)".to_owned(),
        };
        let host = host.map_or("*", |host| host);
        println!(
            "{methods} {host}{uri}  route {} priority {} -> {target}",
            entry.id, entry.priority
        );
        match route.general_because() {
            Some(why) => println!("    lane: general ({why})"),
            None if route.plan.needs_body() => {
                println!("    lane: wire; general for requests with a body, which a plugin reads");
            }
            None => println!("    lane: wire"),
        }
        if entry.vars.is_some() || !entry.remote_addrs.is_empty() {
            let addrs: Vec<String> = entry.remote_addrs.iter().map(ToString::to_string).collect();
            let vars = if entry.vars.is_some() {
                " and vars"
            } else {
                ""
            };
            println!(
                "    only from: {}{vars}",
                if addrs.is_empty() {
                    "anywhere".to_owned()
                } else {
                    addrs.join(", ")
                }
            );
        }
        route
            .plan
            .describe()
            .iter()
            .for_each(|line| println!("    {line}"));
    }
}

/// Prints the version.
pub fn version() -> ExitCode {
    println!(
        "lockgate {} (compatible with APISIX {})",
        env!("CARGO_PKG_VERSION"),
        gateway::APISIX_VERSION
    );
    ExitCode::SUCCESS
}
