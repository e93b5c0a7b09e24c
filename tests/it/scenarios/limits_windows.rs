//! Three gateways with one limit and uneven load: what they admit together, as the upstream sees it.
//!
//! A window begins with the first request after the last one ended, wherever that is, so nobody's clock
//! tells where it begins. Two things do without: every answer says how many are left, and each number may
//! come once a window (not of those who take permits ahead); and windows of this length fit so many times between the
//! first and the last request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::limits_load::{Load, Sample, Stream, statuses};
use super::limits_servers::{Kind, Servers};
use super::{gateway, target};
use crate::World;
use crate::gateway::{Gateway, POLL};
use crate::value::merge;

/// A gateway for each; how many clients it has, of ten.
const CLIENTS: [usize; 3] = [7, 2, 1];
/// Each client sends fifty a second, and so asks far more than there is.
const EVERY: Duration = Duration::from_millis(20);
/// A machine that is busy with other things sees the windows it has to well within this.
const LIMIT: Duration = Duration::from_secs(200);
/// So many windows have to be exhausted: the second shows that the first one ended.
const WINDOWS: usize = 2;
/// Calls of Redis for a thousand requests of those who take permits ahead: a twentieth would be a good day, half of
/// the requests a bad one.
const SELDOM: f64 = 500.0;
const MILLISECOND: Duration = Duration::from_millis(1);
/// No test waits for Redis that long unless it is not there.
const DEADLINE_MS: u64 = 10_000;

/// How a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `limit-count`, which asks for every request.
    Count,
    /// `limit`, the same.
    Exact,
    /// `limit`, with permits taken ahead.
    Lease,
}

/// A limit of so many in a window of so many seconds.
#[derive(Clone, Copy)]
struct Quota {
    name: &'static str,
    way: Way,
    limit: usize,
    window: u64,
}

const fn quota(name: &'static str, way: Way, limit: usize, window: u64) -> Quota {
    Quota {
        name,
        way,
        limit,
        window,
    }
}

const SHORT: [Quota; 5] = [
    quota("count-1", Way::Count, 60, 1),
    quota("count-10", Way::Count, 400, 10),
    quota("exact-10", Way::Exact, 400, 10),
    quota("lease-1", Way::Lease, 120, 1),
    quota("lease-10", Way::Lease, 400, 10),
];
const LONG: [Quota; 8] = [
    SHORT[0],
    SHORT[1],
    SHORT[2],
    SHORT[3],
    SHORT[4],
    quota("count-60", Way::Count, 2_000, 60),
    quota("exact-60", Way::Exact, 2_000, 60),
    quota("lease-60", Way::Lease, 2_000, 60),
];

/// As many windows as a test has time for.
pub(super) async fn few(world: Arc<World>) -> Result<()> {
    windows(&world, &SHORT).await.map(drop)
}

/// With windows of a minute, too.
pub(super) async fn many(world: Arc<World>) -> Result<Vec<Admitted>> {
    windows(&world, &LONG).await
}

/// What became of a limit.
pub(super) struct Admitted {
    quota: Quota,
    asked: usize,
    admitted: usize,
    windows: usize,
    /// Of Redis, for a thousand requests of its kind.
    calls: f64,
}

impl fmt::Display for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota {
            name,
            limit,
            window,
            ..
        } = self.quota;
        let (asked, admitted, windows) = (self.asked, self.admitted, self.windows);
        write!(
            f,
            "{name}: {limit} in {window} s; {asked} asked, {admitted} admitted in {windows} windows, "
        )?;
        let calls = self.calls;
        write!(f, "{calls:.1} calls of Redis for a thousand requests")
    }
}

async fn windows(world: &Arc<World>, quotas: &[Quota]) -> Result<Vec<Admitted>> {
    // One Redis for those who ask every time, and one for the others: whose calls they are can be told.
    let servers = [
        Servers::start(world, Kind::Single, &[]).await?,
        Servers::start(world, Kind::Single, &[]).await?,
    ];
    let resources = routes(world, &servers, quotas)?;
    let mut gateways = Vec::new();
    for number in 0..CLIENTS.len() {
        let name = format!("windows-{number}");
        gateways.push(gateway(world, &name, &json!({}), resources.clone()).await?);
    }
    let mut streams = Vec::new();
    for quota in quotas {
        for (gateway, clients) in gateways.iter().zip(CLIENTS) {
            streams.push(Stream {
                target: target(gateway)?,
                path: quota.path(),
                clients,
                every: EVERY,
            });
        }
    }
    let begun = Instant::now();
    let load = Load::start(&streams);
    exhausted(&load, quotas, &gateways).await?;
    let samples = load.stop().await;
    let calls = [servers[0].calls()?, servers[1].calls()?];
    for gateway in gateways {
        ensure!(gateway.stop().await?.success(), "a gateway failed");
    }
    let of = |at: usize| {
        samples
            .iter()
            .filter(move |sample| sample.stream / CLIENTS.len() == at)
    };
    let mut out = Vec::new();
    for (at, quota) in quotas.iter().enumerate() {
        let own: Vec<Sample> = of(at).copied().collect();
        let arrived = world.upstreams.recorder.tally(quota.name);
        let admitted = quota.judge(&own, begun, &arrived);
        out.push(admitted.with_context(|| format!("{}: {:?}", quota.name, statuses(own.iter())))?);
    }
    for (calls, asks) in calls.into_iter().zip([true, false]) {
        let together = quotas.iter().enumerate();
        let together = together.filter(|(_, quota)| quota.way.asks() == asks);
        let requests: usize = together.map(|(at, _)| of(at).count()).sum();
        let each = calls as f64 * 1e3 / requests as f64;
        // Those that come first may find that Redis does not know the script, and say it.
        let first: usize = streams.iter().map(|stream| stream.clients).sum();
        let fits = if asks {
            (requests..=requests + first).contains(&usize::try_from(calls)?)
        } else {
            calls > 0 && each < SELDOM
        };
        ensure!(fits, "{calls} calls for {requests} requests");
        for one in out.iter_mut().filter(|one| one.quota.way.asks() == asks) {
            one.calls = each;
        }
    }
    Ok(out)
}

fn routes(world: &World, servers: &[Servers; 2], quotas: &[Quota]) -> Result<Value> {
    let echo = world.upstreams.address("echo")?.to_string();
    let each = quotas.iter().map(|quota| {
        let servers = &servers[usize::from(!quota.way.asks())];
        let mut store = servers.policy();
        merge(&mut store, &servers.deadline(DEADLINE_MS));
        json!({
            "id": quota.name, "uri": quota.path(),
            "plugins": quota.plugin(&store), "upstream": { "nodes": { &echo: 1 } },
        })
    });
    Ok(json!({ "routes": each.collect::<Vec<_>>() }))
}

/// Waits until each limit has been reached in some windows.
async fn exhausted(load: &Load, quotas: &[Quota], gateways: &[Gateway]) -> Result<()> {
    // Who takes permits ahead has no last one that everybody sees: it refuses.
    let reached = |at: usize| {
        let samples = load.samples();
        let own = samples
            .iter()
            .filter(|sample| sample.stream / CLIENTS.len() == at);
        if quotas[at].way.asks() {
            own.filter(|sample| sample.status == 200 && sample.left == Some(0))
                .count()
        } else {
            own.filter(|sample| sample.status != 200).count()
        }
    };
    let start = Instant::now();
    while !(0..quotas.len()).all(|at| reached(at) >= WINDOWS) {
        let reached: Vec<usize> = (0..quotas.len()).map(reached).collect();
        ensure!(
            start.elapsed() < LIMIT,
            "limits were reached in {reached:?} windows\n{}",
            gateways[0].last_lines(10)
        );
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

impl Quota {
    fn path(&self) -> String {
        format!("/tally/{}", self.name)
    }

    fn plugin(&self, store: &Value) -> Value {
        let (limit, window) = (self.limit, self.window);
        let mode = match self.way {
            Way::Count => {
                let mut conf = json!({ "count": limit, "time_window": window });
                merge(&mut conf, store);
                return json!({ "limit-count": conf });
            }
            Way::Exact => "exact",
            Way::Lease => "lease",
        };
        let one = json!({ "name": "one", "algorithm": "fixed_window", "count": limit,
            "time_window": window, "key": "", "mode": mode });
        json!({ "limit": { "store": store, "gateways": CLIENTS.len(), "limits": [one] } })
    }

    fn refusal(&self) -> u16 {
        if self.way == Way::Count { 503 } else { 429 }
    }

    /// No window has let more pass than its limit.
    fn judge(&self, samples: &[Sample], begun: Instant, arrived: &[Instant]) -> Result<Admitted> {
        for sample in samples {
            let known = sample.status == 200 || sample.status == self.refusal();
            ensure!(known, "neither admitted nor refused: {sample:?}");
        }
        let admitted = samples.iter().filter(|s| s.status == 200).count();
        ensure!(
            arrived.len() == admitted,
            "the upstream got {} requests, {admitted} were answered",
            arrived.len()
        );
        // By the upstream's clock: no two windows can begin within one, which Redis counts in milliseconds.
        let took = *arrived.last().context("nothing arrived")? - begun;
        let window = Duration::from_secs(self.window) - 2 * MILLISECOND;
        let fit = usize::try_from(took.as_millis() / window.as_millis())? + 1;
        let windows = if self.way.asks() {
            self.count_down(samples)?
        } else {
            fit
        };
        ensure!(
            windows <= fit && arrived.len() <= fit * self.limit,
            "{} arrived in {took:?}",
            arrived.len()
        );
        Ok(Admitted {
            quota: *self,
            asked: samples.len(),
            admitted,
            windows,
            calls: 0.0,
        })
    }

    /// Each number of what is left came once a window, and windows that refused have let pass just the
    /// limit. Gives how many windows there were.
    fn count_down(&self, samples: &[Sample]) -> Result<usize> {
        let mut times = vec![0_usize; self.limit];
        for sample in samples {
            let left = sample.left.and_then(|left| usize::try_from(left).ok());
            match (sample.status, left) {
                (200, Some(left)) if left < self.limit => times[left] += 1,
                (200, _) => bail!("more is left than there is: {sample:?}"),
                (_, left) => ensure!(
                    left == Some(0),
                    "refused, and something is left: {sample:?}"
                ),
            }
        }
        ensure!(
            times.is_sorted_by(|few, many| few <= many) && times[0] >= WINDOWS,
            "windows count down from {}: so often each was left: {times:?}",
            self.limit
        );
        Ok(times[self.limit - 1])
    }
}

impl Way {
    /// Whether each request asks.
    fn asks(self) -> bool {
        self != Way::Lease
    }
}
