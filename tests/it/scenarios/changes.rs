//! Changes one can trust, where processes end and several write.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::etcd::{Etcd, until};
use super::{gateway, once, target, wants};
use crate::World;
use crate::client::Answer;
use crate::gateway::{Gateway, POLL, binary};

/// What goes back, does so well within this.
const LIMIT: Duration = Duration::from_secs(30);

fn json_of(answer: &Answer) -> Result<Value> {
    serde_json::from_slice(&answer.body).context("the answer is no JSON")
}

#[allow(clippy::needless_pass_by_value)] // `put(.., json!(..))` reads best by value.
fn put(kind: &str, id: &str, value: Value) -> Value {
    json!({ "op": "put", "kind": kind, "id": id, "value": value })
}

fn says(text: &str) -> Value {
    json!({ "uri": "/*", "plugins": { "mocking": { "response_example": text } } })
}

async fn body(gateway: &Gateway) -> Result<String> {
    let answer = once(&target(gateway)?, "/x").await;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

async fn until_says(gateway: &Gateway, text: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let got = body(gateway).await?;
        if got == text {
            return Ok(());
        }
        ensure!(
            start.elapsed() < LIMIT,
            "wanted {text}, got {got}\n{}",
            gateway.last_lines(10)
        );
        tokio::time::sleep(POLL).await;
    }
}

/// Carries a change out, and gives its revision.
async fn apply(gateway: &Gateway, order: &Value) -> Result<u64> {
    let answer = gateway.own("POST", "/apply", order).await;
    wants(&answer, 200, &order.to_string())?;
    json_of(&answer)?["revision"]
        .as_u64()
        .context("no revision")
}

async fn history(gateway: &Gateway) -> Result<Value> {
    let answer = gateway.own("GET", "/history", &Value::Null).await;
    wants(&answer, 200, "the history")?;
    Ok(json_of(&answer)?["history"].take())
}

pub(super) async fn restarted(world: Arc<World>) -> Result<()> {
    let config = json!({ "deployment": { "role": "traditional" } });
    let first = gateway(&world, "changes", &config, json!({})).await?;
    apply(
        &first,
        &json!({ "changes": [put("routes", "r", says("old"))] }),
    )
    .await?;
    let order = json!({
        "changes": [put("routes", "r", says("new")), put("upstreams", "u", json!({ "nodes": {} }))],
        "confirm": { "within_seconds": 2 },
    });
    let revision = apply(&first, &order).await?;
    ensure!(body(&first).await? == "new", "the change is not in use");
    // It does not outlive its time because the process does not.
    first.signal(Signal::SIGKILL)?;
    drop(first);
    let second = gateway(&world, "changes", &config, json!({})).await?;
    until_says(&second, "old").await?;
    let gone = second.admin("GET", "/upstreams/u", &Value::Null).await;
    wants(&gone, 404, "what the change had made")?;
    let known = history(&second).await?;
    ensure!(
        known[0]["action"] == "went back" && known[1]["revision"] == revision,
        "{known}"
    );
    // Confirmed, it stays: over a restart and its time.
    let revision = apply(&second, &order).await?;
    let answer = second
        .own("POST", "/confirm", &json!({ "revision": revision }))
        .await;
    wants(&answer, 200, "the confirmation")?;
    second.signal(Signal::SIGKILL)?;
    drop(second);
    let third = gateway(&world, "changes", &config, json!({})).await?;
    ensure!(body(&third).await? == "new", "what was confirmed is gone");
    let known = history(&third).await?;
    ensure!(
        known[0]["action"] == format!("confirm {revision}"),
        "{known}"
    );
    // The history reaches over restarts.
    let first = known.as_array().and_then(|list| list.last());
    let first = first.and_then(|entry| entry["revision"].as_u64());
    let back = json!({ "to": first.context("no history")? });
    wants(
        &third.own("POST", "/rollback", &back).await,
        200,
        "the way back",
    )?;
    ensure!(body(&third).await? == "old", "the way back is not in use");
    ensure!(third.stop().await?.success(), "the gateway failed");
    Ok(())
}

pub(super) async fn shared(world: Arc<World>) -> Result<()> {
    let folder = world.root.join("etcd-changes");
    let etcd = Etcd::start(folder, world.ports.take()?, world.ports.take()?)?;
    let config = json!({ "deployment": { "role": "traditional", "etcd": {
        "host": [format!("http://127.0.0.1:{}", etcd.client)],
        "prefix": "/changes", "timeout": 2, "startup_retry": 10 } } });
    let a = gateway(&world, "changes-a", &config, json!({})).await?;
    let b = gateway(&world, "changes-b", &config, json!({})).await?;
    // More than etcd takes in one level of a transaction.
    let mut changes = vec![put(
        "upstreams",
        "u",
        json!({ "nodes": { "127.0.0.1:1": 1 } }),
    )];
    changes.extend((0..200).map(|at| {
        put(
            "routes",
            &at.to_string(),
            json!({ "uri": format!("/many/{at}"), "upstream_id": "u" }),
        )
    }));
    changes.push(put("routes", "r", says("old")));
    apply(&a, &json!({ "changes": changes })).await?;
    until_says(&b, "old").await?;
    until(&b, "/many/199", 502).await?;
    let known = history(&b).await?;
    let resources = known[0]["changes"].as_array().map(Vec::len);
    ensure!(resources == Some(202) && known[0]["key"] == "it", "{known}");

    // More than it takes at all: nothing is written, and what sets the limit is named.
    let too_many: Vec<Value> = (0..4000)
        .map(|at| put("upstreams", &format!("x{at}"), json!({ "nodes": {} })))
        .collect();
    let refused = a
        .own("POST", "/apply", &json!({ "changes": too_many }))
        .await;
    wants(&refused, 400, "more than etcd takes")?;
    let said = String::from_utf8_lossy(&refused.body).into_owned();
    ensure!(
        said.contains("4000 resources") && said.contains("--max-txn-ops"),
        "{said}"
    );

    // Two look at the same revision; one of them is first.
    let revision = json_of(&b.own("POST", "/plan", &json!({ "changes": [] })).await)?;
    let order = |text: &str| json!({ "expected_revision": revision["revision"], "changes": [put("routes", "r", says(text))] });
    let (by_a, by_b) = (order("a"), order("b"));
    let (one, other) = tokio::join!(
        a.own("POST", "/apply", &by_a),
        b.own("POST", "/apply", &by_b)
    );
    let mut statuses = [one.status, other.status];
    statuses.sort();
    ensure!(statuses == [Some(200), Some(409)], "{statuses:?}");
    let winner = if one.status == Some(200) { "a" } else { "b" };
    until_says(&a, winner).await?;
    until_says(&b, winner).await?;
    // A deletion elsewhere counts, too, though no resource tells of it.
    let plan = json_of(&a.own("POST", "/plan", &json!({ "changes": [] })).await)?;
    wants(
        &b.admin("DELETE", "/routes/7", &Value::Null).await,
        200,
        "a deletion",
    )?;
    let late = json!({ "expected_revision": plan["revision"], "changes": [put("routes", "r", says("late"))] });
    wants(
        &a.own("POST", "/apply", &late).await,
        409,
        "after a deletion",
    )?;

    // Whoever is alive at the deadline takes it back.
    let waits =
        json!({ "changes": [put("routes", "r", says("new"))], "confirm": { "within_seconds": 3 } });
    apply(&a, &waits).await?;
    until_says(&b, "new").await?;
    let other = json!({ "changes": [put("routes", "r", says("other"))], "confirm": { "within_seconds": 3 } });
    let again = b.own("POST", "/apply", &other).await;
    wants(&again, 409, "a second one that is to wait")?;
    a.signal(Signal::SIGKILL)?;
    until_says(&b, winner).await?;
    let known = history(&b).await?;
    ensure!(known[0]["action"] == "went back", "{known}");
    ensure!(b.stop().await?.success(), "the gateway failed");
    Ok(())
}

/// Another gateway that writes one route after the other does not keep a change from going back; a
/// rollback names what a stranger wrote.
pub(super) async fn among_others(world: Arc<World>) -> Result<()> {
    let folder = world.root.join("etcd-among");
    let etcd = Etcd::start(folder, world.ports.take()?, world.ports.take()?)?;
    let config = json!({ "deployment": { "role": "traditional", "etcd": {
        "host": [format!("http://127.0.0.1:{}", etcd.client)],
        "prefix": "/among", "timeout": 2, "startup_retry": 10 } } });
    let a = gateway(&world, "among-a", &config, json!({})).await?;
    let b = Arc::new(gateway(&world, "among-b", &config, json!({})).await?);
    apply(&a, &json!({ "changes": [put("routes", "r", says("old"))] })).await?;
    let mut writers = Writers::start(&b);
    writers.written(20).await?;
    let waits = json!({ "changes": [put("routes", "r", says("new")), put("routes", "made", says("made"))],
        "confirm": { "within_seconds": 1 } });
    // An order itself may have to be made again: it insists on what it was worked out from.
    let start = Instant::now();
    while a.own("POST", "/apply", &waits).await.status != Some(200) {
        ensure!(start.elapsed() < LIMIT, "the change is not made");
    }
    until_says(&a, "old").await?;
    writers.written(20).await?;
    writers.stop().await?;
    let gone = a.admin("GET", "/routes/made", &Value::Null).await;
    wants(&gone, 404, "what the change had made")?;

    // What was put into etcd by nobody who keeps a history.
    let order = |text: &str| json!({ "changes": [put("routes", "r", says(text))] });
    let to = apply(&a, &order("settled")).await?;
    let text = json!({ "uri": "/strange", "plugins": { "mocking": { "response_example": "x" } } })
        .to_string();
    let mut client =
        etcd_client::Client::connect([format!("127.0.0.1:{}", etcd.client)], None).await?;
    client.put("/among/routes/strange", text, None).await?;
    until(&a, "/strange", 200).await?;
    apply(&a, &order("later")).await?;
    let back = a.own("POST", "/rollback", &json!({ "to": to })).await;
    wants(&back, 200, "the way back")?;
    let told = json_of(&back)?;
    ensure!(
        told["not_in_history"]["kept"][0]["resource"] == "routes/strange"
            && told["not_in_history"]["in_all"] == 1,
        "{told}"
    );
    until(&a, "/strange", 200).await?;
    for gateway in [&a, &*b] {
        until_says(gateway, "settled").await?;
    }
    ensure!(a.stop().await?.success(), "the gateway failed");
    Ok(())
}

/// Clients that write through a gateway until they are stopped.
struct Writers {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    tasks: JoinSet<Result<()>>,
}

impl Writers {
    fn start(gateway: &Arc<Gateway>) -> Writers {
        let stop = Arc::<AtomicBool>::default();
        let written = Arc::<AtomicUsize>::default();
        let mut tasks = JoinSet::new();
        for at in 0..4 {
            let gateway = Arc::clone(gateway);
            let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
            tasks.spawn(async move {
                let path = format!("/routes/noise{at}");
                while !stop.load(Ordering::Relaxed) {
                    let uri = format!("/noise/{at}/{}", written.load(Ordering::Relaxed));
                    let plugins = json!({ "mocking": { "response_example": "x" } });
                    let route = json!({ "uri": uri, "plugins": plugins });
                    let answer = gateway.admin("PUT", &path, &route).await;
                    let good = matches!(answer.status, Some(200 | 201));
                    let said = String::from_utf8_lossy(&answer.body).into_owned();
                    ensure!(good, "a writer: {:?} {said}", answer.status);
                    written.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Writers {
            stop,
            written,
            tasks,
        }
    }

    /// Waits for so many more writes.
    async fn written(&mut self, more: usize) -> Result<()> {
        let aim = self.written.load(Ordering::Relaxed) + more;
        let start = Instant::now();
        while self.written.load(Ordering::Relaxed) < aim {
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
            }
            ensure!(start.elapsed() < LIMIT, "nobody writes");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(done) = self.tasks.join_next().await {
            done??;
        }
        Ok(())
    }
}

/// Runs a command of the binary in the folder of a gateway.
fn run(gateway: &Gateway, args: &[&str]) -> Result<(bool, String)> {
    let done = Command::new(binary())
        .args(args)
        .args(["-c", "config.yaml"])
        .current_dir(&gateway.dir)
        .output()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    Ok((done.status.success(), text + &errors))
}

fn shows(gateway: &Gateway, args: &[&str], good: bool, parts: &[&str]) -> Result<String> {
    let (ok, text) = run(gateway, args)?;
    ensure!(ok == good, "{args:?}: {text}");
    for part in parts {
        ensure!(text.contains(part), "{args:?}: no {part:?} in\n{text}");
    }
    Ok(text)
}

fn number_after(text: &str, start: &str) -> Result<String> {
    let rest = text
        .split_once(start)
        .with_context(|| format!("no {start:?} in {text}"))?
        .1;
    Ok(rest.chars().take_while(char::is_ascii_digit).collect())
}

pub(super) async fn commands(world: Arc<World>) -> Result<()> {
    let config = json!({ "deployment": { "role": "traditional" } });
    let gateway = gateway(&world, "commands", &config, json!({})).await?;
    let file = |name: &str, text: &str| std::fs::write(gateway.dir.join(name), text);
    file(
        "shop.yaml",
        "upstreams:\n  - {id: shop, nodes: {\"127.0.0.1:1\": 1}}\nroutes:\n  - {id: cart, uri: /cart, upstream_id: shop}\n",
    )?;
    let text = shows(
        &gateway,
        &["plan", "shop.yaml"],
        true,
        &[
            "+ routes/cart",
            "2 to create, 0 to change, 0 to delete",
            "routes touched: cart",
        ],
    )?;
    let revision = number_after(&text, "--expect ")?;
    shows(
        &gateway,
        &[
            "apply",
            "shop.yaml",
            "--expect",
            &revision,
            "--comment",
            "the shop",
        ],
        true,
        &["done: revision "],
    )?;
    wants(
        &once(&target(&gateway)?, "/cart?token=secret").await,
        502,
        "the route",
    )?;
    // With a mistake, everything is named with its line.
    file(
        "bad.yaml",
        "changes:\n- op: put\n  kind: routes\n  id: x\n  value:\n    uri: 1\n    upstream_id: none\n",
    )?;
    shows(
        &gateway,
        &["apply", "bad.yaml"],
        false,
        &[
            "bad.yaml:6:5: changes[0].value.uri: ",
            "bad.yaml:7:5: changes[0].value.upstream_id: there is no upstreams/none",
            "2 problems; nothing was changed",
        ],
    )?;
    // What would become of the requests that were seen.
    file(
        "gone.yaml",
        "changes:\n- {op: delete, kind: routes, id: cart}\n",
    )?;
    let text = shows(
        &gateway,
        &["plan", "gone.yaml"],
        true,
        &[
            "- routes/cart",
            "GET http://scenario.test/cart?token=\n",
            "now:  route cart",
            "then: no route, answers 404",
        ],
    )?;
    ensure!(!text.contains("secret"), "{text}");
    file(
        "requests.txt",
        "GET http://a.test/cart\nPOST /other\n# a comment\nnonsense with words\n",
    )?;
    shows(
        &gateway,
        &["plan", "gone.yaml", "--requests", "requests.txt"],
        true,
        &[
            "of the requests given, 1 of 2 would come to something else",
            "line 4 was not understood",
        ],
    )?;
    let text = shows(
        &gateway,
        &["apply", "gone.yaml", "--confirm-within", "3600"],
        true,
        &["goes back by itself in 3600 s"],
    )?;
    let waits = number_after(&text, "lockgate confirm ")?;
    wants(
        &once(&target(&gateway)?, "/cart").await,
        404,
        "the route that is gone",
    )?;
    shows(
        &gateway,
        &["history"],
        true,
        &[
            &format!("revision {waits} goes back by itself at "),
            "it from 127.0.0.1  apply: the shop",
        ],
    )?;
    shows(
        &gateway,
        &["confirm", "1"],
        false,
        &[&format!(
            "what waits for a confirmation is revision {waits}"
        )],
    )?;
    shows(
        &gateway,
        &["confirm", &waits],
        true,
        &[&format!("confirmed: revision {waits} stays")],
    )?;
    shows(
        &gateway,
        &["history", &waits],
        true,
        &[
            "- routes/cart",
            r#"- {"id":"cart","uri":"/cart","upstream_id":"shop"}"#,
        ],
    )?;
    shows(
        &gateway,
        &["rollback", "--undo", &waits, "--comment", "needed"],
        true,
        &["+ routes/cart"],
    )?;
    wants(
        &once(&target(&gateway)?, "/cart").await,
        502,
        "the route is back",
    )?;
    shows(
        &gateway,
        &["rollback", "999999"],
        false,
        &["revision 999999 is not there yet"],
    )?;
    let text = shows(&gateway, &["history", "--json"], true, &[])?;
    let known: Value = serde_json::from_str(&text)?;
    ensure!(known["history"][0]["comment"] == "needed", "{known}");
    // Two files, no gateway.
    file(
        "new.yaml",
        "upstreams:\n  - {id: shop, nodes: {\"127.0.0.1:2\": 1}}\nroutes:\n  - {id: cart, uri: /cart, upstream_id: shop}\n",
    )?;
    shows(
        &gateway,
        &[
            "plan",
            "--from",
            "shop.yaml",
            "--to",
            "new.yaml",
            "--requests",
            "requests.txt",
        ],
        true,
        &[
            "~ upstreams/shop",
            "1 of 2 would come to something else",
            "differs: nodes",
            "127.0.0.1:1 (1)",
            "127.0.0.1:2 (1)",
        ],
    )?;
    ensure!(gateway.stop().await?.success(), "the gateway failed");
    Ok(())
}
