//! Whatever becomes of the servers that count: what requests notice, for how long, and what passes.
//!
//! Each fault gets load of its own, before, during and after, on routes that differ in what they do
//! when nobody counts. In short it is a test, of what the speed of a machine cannot change: outcomes,
//! sums, that it ends. `make chaos` takes longer, and judges times, too.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::limits_faults::{Fault, Noticed, OPTIONS, PASSWORD};
use super::limits_load::{Load, Sample, Stream, statuses};
use super::limits_policy::Policy;
use super::limits_servers::{Kind, Servers};
use super::limits_verdict::{Phases, Row, Table};
use super::{gateway, limits_windows, target};
use crate::World;
use crate::gateway::{Gateway, POLL};
use crate::value::merge;

/// Everything happens well within this, on a machine that does other things.
const LIMIT: Duration = Duration::from_secs(60);
/// So many answers in a row show that it is over.
const STEADY: usize = 50;

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// What a request waits for Redis.
    pub(super) deadline: Duration,
    /// At least this long before, during and after.
    pub(super) phase: Duration,
    /// Clients of each route, and how often each asks.
    pub(super) clients: usize,
    pub(super) every: Duration,
    /// Whether times count.
    pub(super) timed: bool,
}

impl Extent {
    /// A part of `make test`.
    const SHORT: Extent = Extent {
        deadline: Duration::from_secs(3),
        phase: Duration::from_millis(200),
        clients: 3,
        every: Duration::from_millis(10),
        timed: false,
    };
    /// `make chaos`: the deadline of the design's measurements.
    const LONG: Extent = Extent {
        deadline: Duration::from_millis(20),
        phase: Duration::from_secs(5),
        clients: 16,
        every: Duration::from_millis(32),
        timed: true,
    };
}

/// One kind of servers, a gateway, and the faults one after the other.
struct Run {
    servers: Servers,
    kind: Kind,
    gateway: Gateway,
    world: Arc<World>,
    extent: Extent,
}

pub(super) async fn single(world: Arc<World>) -> Result<()> {
    short(&world, Kind::Single).await
}

pub(super) async fn sentinels(world: Arc<World>) -> Result<()> {
    short(&world, Kind::Sentinels).await
}

pub(super) async fn cluster(world: Arc<World>) -> Result<()> {
    short(&world, Kind::Cluster).await
}

async fn short(world: &Arc<World>, kind: Kind) -> Result<()> {
    let rows = faults(world, kind, Extent::SHORT, &|_| true).await?;
    ensure!(!rows.is_empty(), "nothing happened");
    let wrong: Vec<&Row> = rows.iter().filter(|row| !row.wrong.is_empty()).collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Everything that is wanted, for longer, with times; true when all is as the design says.
pub(crate) async fn long(world: Arc<World>, wants: &(dyn Fn(&str) -> bool + Sync)) -> Result<bool> {
    if wants("windows") {
        for admitted in limits_windows::many(Arc::clone(&world)).await? {
            println!("{admitted}");
        }
    }
    let mut rows = Vec::new();
    for kind in [Kind::Single, Kind::Sentinels, Kind::Cluster] {
        rows.extend(faults(&world, kind, Extent::LONG, wants).await?);
    }
    println!("\n{}", Table(&rows));
    Ok(rows.iter().all(|row| row.wrong.is_empty()))
}

/// The wanted faults of servers of a kind.
async fn faults(
    world: &Arc<World>,
    kind: Kind,
    extent: Extent,
    wants: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let wanted = |fault: &&Fault| wants(&fault.name(kind));
    let faults: Vec<&Fault> = Fault::of(kind).iter().filter(wanted).collect();
    if faults.is_empty() {
        return Ok(rows);
    }
    let servers = Servers::start(world, kind, &OPTIONS).await?;
    let resources = routes(world, &servers, extent)?;
    let name = format!("chaos-{kind:?}").to_lowercase();
    let gateway = gateway(world, &name, &json!({}), resources).await?;
    let mut run = Run {
        servers,
        kind,
        gateway,
        world: Arc::clone(world),
        extent,
    };
    for fault in faults {
        let name = fault.name(kind);
        let (done, next) = run.fault(*fault).await.context(name)?;
        rows.extend(done);
        run = next;
    }
    ensure!(run.gateway.stop().await?.success(), "the gateway failed");
    Ok(rows)
}

fn routes(world: &World, servers: &Servers, extent: Extent) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let mut to = servers.policy();
    merge(
        &mut to,
        &servers.deadline(u64::try_from(extent.deadline.as_millis())?),
    );
    if let Servers::Single { .. } = servers {
        merge(&mut to, &json!({ "redis_password": PASSWORD }));
    }
    let each = Policy::ALL.map(|policy| {
        json!({
            "id": policy.id(), "uri": format!("/tally/{}-*", policy.id()),
            "plugins": policy.plugins(&to), "upstream": { "nodes": { &echo: 1 } },
        })
    });
    Ok(json!({ "routes": each }))
}

impl Run {
    async fn fault(mut self, fault: Fault) -> Result<(Vec<Row>, Run)> {
        let extent = self.extent;
        let name = fault.name(self.kind);
        let mut streams = Vec::new();
        for policy in Policy::ALL {
            streams.push(Stream {
                target: target(&self.gateway)?,
                path: format!("/tally/{}-{name}", policy.id()),
                clients: extent.clients,
                every: extent.every,
            });
        }
        let load = Load::start(&streams);
        self.steady(&load, Duration::ZERO).await.context("before")?;
        let (from, size) = (load.now(), self.size()?);
        tokio::time::sleep(extent.phase).await;
        let begun = load.now();
        self = self
            .on_thread(move |run| fault.begin(&mut run.servers))
            .await?;
        let noticed = fault.noticed(extent.deadline);
        if noticed == Noticed::Away {
            self.away(&load, begun).await?;
        }
        if extent.timed || !fault.passes() {
            tokio::time::sleep(extent.phase).await;
        }
        let ended = load.now();
        self = self
            .on_thread(move |run| fault.end(&mut run.servers))
            .await?;
        let back = load.now();
        self.steady(&load, back).await.context("after")?;
        let steady = load.now();
        tokio::time::sleep(extent.phase).await;
        let phases = Phases {
            from,
            begun,
            ended,
            back,
            steady,
            until: load.now(),
        };
        let grown = self.size()?;
        let samples = load.stop().await;
        let rows = self.judge(fault, &phases, &samples);
        grown.unchanged_since(size)?;
        Ok((rows, self))
    }

    /// Waits until the strict route fails, which shows that the fault is noticed.
    async fn away(&self, load: &Load, from: Duration) -> Result<()> {
        self.until(load, "nobody notices", |load| {
            load.has(from, |sample| sample.stream == 0 && sample.status == 500)
        })
        .await
    }

    /// Waits until all is counted again.
    async fn steady(&self, load: &Load, from: Duration) -> Result<()> {
        self.until(load, "it is not over", |load| {
            let samples = load.samples();
            let mut strict = samples.iter().rev().filter(|sample| sample.stream == 0);
            strict
                .by_ref()
                .take(STEADY)
                .filter(|s| s.status == 200 && s.at >= from)
                .count()
                == STEADY
        })
        .await
    }

    async fn until(&self, load: &Load, what: &str, done: impl Fn(&Load) -> bool) -> Result<()> {
        let from = load.now();
        while !done(load) {
            ensure!(
                load.now() - from < LIMIT,
                "{what}: {:?}\n{}",
                statuses(load.samples().iter().filter(|sample| sample.at >= from)),
                self.gateway.last_lines(10)
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Does what waits on a thread that may.
    async fn on_thread(
        mut self,
        work: impl FnOnce(&mut Run) -> Result<()> + Send + 'static,
    ) -> Result<Run> {
        spawn_blocking(move || {
            work(&mut self)?;
            Ok(self)
        })
        .await?
    }

    fn size(&self) -> Result<Size> {
        Size::of(self.gateway.pid())
    }

    fn judge(&self, fault: Fault, phases: &Phases, samples: &[Sample]) -> Vec<Row> {
        let name = fault.name(self.kind);
        let each = Policy::ALL.into_iter().enumerate();
        each.map(|(stream, policy)| {
            let own = samples.iter().filter(|sample| sample.stream == stream);
            let own: Vec<Sample> = own.copied().collect();
            let mut row = Row::new((&name, fault), policy, phases, &own, self.extent);
            // With a deadline of milliseconds the machine alone makes an answer late.
            let may = self.extent.timed || fault.noticed(self.extent.deadline) != Noticed::Nothing;
            let odd = own.iter().find(|sample| {
                // Sent before, answered during: it may have noticed.
                let during = phases.begun <= sample.at + sample.took && sample.at < phases.steady;
                !policy.allows(sample, may && (during || self.extent.timed))
            });
            if let Some(odd) = odd {
                row.wrong.push(format!("{odd:?} in {phases:?}"));
            }
            let admitted = own.iter().filter(|sample| sample.status == 200).count();
            let key = format!("{}-{name}", policy.id());
            let arrived = self.world.upstreams.recorder.tally(&key).len();
            if arrived != admitted {
                let wrong = format!("{admitted} were admitted, {arrived} arrived");
                row.wrong.push(wrong);
            }
            if let Some(most) = policy.most(fault).filter(|most| admitted > *most) {
                row.wrong
                    .push(format!("{admitted} were admitted, {most} may be"));
            }
            row
        })
        .collect()
    }
}

/// What a gateway holds.
#[derive(Clone, Copy, Debug)]
struct Size {
    files: usize,
    threads: usize,
    kib: u64,
}

impl Size {
    fn of(pid: u32) -> Result<Size> {
        let entries = |name| std::fs::read_dir(format!("/proc/{pid}/{name}")).map(Iterator::count);
        Ok(Size {
            files: entries("fd")?,
            threads: entries("task")?,
            kib: super::resident(pid)?,
        })
    }

    /// Fails when a fault has left something behind.
    fn unchanged_since(self, before: Size) -> Result<()> {
        // A connection or two more, to servers or nodes, are in use at one moment and not at another.
        let files = before.files + 16;
        // What is allocated once, and what requests in flight need.
        let kib = before.kib + before.kib / 4 + 32 * 1024;
        ensure!(
            self.files <= files && self.threads <= before.threads + 4 && self.kib <= kib,
            "it grew from {before:?} to {self:?}"
        );
        Ok(())
    }
}
