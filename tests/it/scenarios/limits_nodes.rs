//! Three gateways with one limit, and one of them dies, or freezes, or nobody can reach etcd.
//!
//! What is counted is in Redis: together they admit the limit, whoever is left. A gateway that is killed takes
//! with it what it was charged for and had not sent on yet, which nobody gets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::limits_load::{Load, Sample, Stream, statuses};
use super::limits_servers::{Kind, Servers};
use super::{gateway, target};
use crate::World;
use crate::gateway::{Gateway, POLL};
use crate::value::merge;

/// A gateway for each; how many clients it has, of ten. The first one is the victim.
const CLIENTS: [usize; 3] = [5, 3, 2];
const EVERY: Duration = Duration::from_millis(10);
/// Longer than a test runs: there is one window.
const WINDOW: u64 = 3_600;
const LIMIT: usize = 400;
/// It happens when so many have been admitted.
const HAPPENS: usize = 100;
/// It is over when so many have been refused by those that are left.
const REFUSED: usize = 50;
/// Longer than any of that takes on a busy machine, and shorter than a client waits.
const DEADLINE_MS: u64 = 15_000;
const WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    WithoutEtcd,
    Frozen,
    Killed,
}

/// See the module.
pub(super) async fn three(world: Arc<World>) -> Result<()> {
    let mut etcd = Cluster::start(&world, "nodes-etcd", 1).await?;
    let servers = Servers::start(&world, Kind::Single, &[]).await?;
    let config = json!({ "deployment": {
        "role": "data_plane", "role_data_plane": { "config_provider": "etcd" },
        "etcd": etcd.section() } });
    let events = [Event::WithoutEtcd, Event::Frozen, Event::Killed];
    for event in events {
        let route = route(&world, &servers, event)?.to_string();
        etcd.put(0, &format!("routes/{event:?}"), &route).await?;
    }
    let mut gateways = Vec::new();
    for number in 0..CLIENTS.len() {
        let name = format!("nodes-{number}");
        gateways.push(gateway(&world, &name, &config, json!({})).await?);
    }
    for event in events {
        let samples = happens(event, &mut etcd, &gateways)
            .await
            .with_context(|| format!("{event:?}"))?;
        let arrived = world.upstreams.recorder.tally(&key(event)).len();
        event.judge(&samples, arrived).with_context(|| {
            let each = (0..CLIENTS.len())
                .map(|at| statuses(samples.iter().filter(|sample| sample.stream == at)));
            format!("{event:?}: {:?}", each.collect::<Vec<_>>())
        })?;
    }
    for gateway in gateways.into_iter().skip(1) {
        ensure!(gateway.stop().await?.success(), "a gateway failed");
    }
    Ok(())
}

fn key(event: Event) -> String {
    format!("nodes-{event:?}")
}

fn route(world: &World, servers: &Servers, event: Event) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let mut conf = json!({ "count": LIMIT, "time_window": WINDOW });
    merge(&mut conf, &servers.policy());
    merge(&mut conf, &servers.deadline(DEADLINE_MS));
    Ok(json!({
        "id": format!("{event:?}"), "uri": format!("/tally/{}", key(event)),
        "plugins": { "limit-count": conf }, "upstream": { "nodes": { echo: 1 } },
    }))
}

/// Load, and in the middle of it the event.
async fn happens(event: Event, etcd: &mut Cluster, gateways: &[Gateway]) -> Result<Vec<Sample>> {
    let mut streams = Vec::new();
    for (gateway, clients) in gateways.iter().zip(CLIENTS) {
        streams.push(Stream {
            target: target(gateway)?,
            path: format!("/tally/{}", key(event)),
            clients,
            every: EVERY,
        });
    }
    let load = Load::start(&streams);
    until(&load, "few are admitted", |load| {
        let samples = load.samples();
        samples.iter().filter(|sample| sample.status == 200).count() >= HAPPENS
    })
    .await?;
    match event {
        Event::WithoutEtcd => etcd.kill_all()?,
        Event::Frozen => gateways[0].signal(Signal::SIGSTOP)?,
        Event::Killed => gateways[0].signal(Signal::SIGKILL)?,
    }
    until(&load, "the others refuse nothing", |load| {
        let samples = load.samples();
        let others = samples.iter().filter(|sample| sample.stream != 0);
        others.filter(|sample| sample.status == 503).count() >= REFUSED
    })
    .await?;
    match event {
        Event::WithoutEtcd => etcd.start_all().await?,
        Event::Frozen => {
            let back = load.now();
            gateways[0].signal(Signal::SIGCONT)?;
            until(&load, "it does not go on", |load| {
                load.has(back, |sample| sample.stream == 0 && sample.status == 503)
            })
            .await?;
        }
        Event::Killed => {}
    }
    Ok(load.stop().await)
}

async fn until(load: &Load, what: &str, done: impl Fn(&Load) -> bool) -> Result<()> {
    let start = Instant::now();
    while !done(load) {
        ensure!(
            start.elapsed() < WAIT,
            "{what}: {:?}",
            statuses(load.samples().iter())
        );
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

impl Event {
    fn judge(self, samples: &[Sample], arrived: usize) -> Result<()> {
        for sample in samples {
            let victim = sample.stream == 0 && self == Event::Killed;
            ensure!(
                matches!(sample.status, 200 | 503) || (victim && sample.status == 0),
                "{sample:?}"
            );
        }
        let admitted = samples.iter().filter(|s| s.status == 200).count();
        let lost = match self {
            // Each of its clients may have had a request that was charged and not sent on, or not answered.
            Event::Killed => CLIENTS[0],
            Event::WithoutEtcd | Event::Frozen => 0,
        };
        ensure!(
            arrived <= LIMIT
                && arrived + lost >= LIMIT
                && (admitted..=admitted + lost).contains(&arrived),
            "{arrived} arrived and {admitted} were answered of {LIMIT}"
        );
        Ok(())
    }
}
