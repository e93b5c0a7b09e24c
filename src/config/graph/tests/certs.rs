//! An upstream that names its certificate has it as long as it is there, and asks nobody without it.

use super::incremental::certificate;
use super::*;

#[test]
fn a_certificate_is_given_to_whoever_names_it() {
    let mut graph = graph();
    let named = |id: &str| json!({"nodes": {"127.0.0.1:1": 1}, "scheme": "https", "tls": {"client_cert_id": id}});
    let applied = graph.accept([
        put("upstreams/u", named("own")),
        put("routes/by-id", json!({"uri": "/a", "upstream_id": "u"})),
        put(
            "routes/inside",
            json!({"uri": "/b", "upstream": named("own")}),
        ),
    ]);
    let missing = |place: &str| {
        format!(
            "{place}tls.client_cert_id: there is no ssl `own` of type client: no node is asked until there is"
        )
    };
    assert_eq!(
        texts(&applied.warnings),
        [missing("upstreams/u "), missing("routes/inside upstream.")]
    );
    let snapshot = applied.snapshot.unwrap();
    let handles = ["by-id", "inside"].map(|id| upstream(&route(&snapshot, id)));
    let check = |has: bool| {
        for handle in &handles {
            let shape = handle.shape();
            assert_eq!(shape.spec.client_cert.is_some(), has, "{}", handle.key);
            assert_eq!(shape.nodes.is_empty(), !has, "{}", handle.key);
        }
    };
    check(false);
    // In any order, and to the same handles.
    let applied = graph.accept([put("ssls/own", certificate(""))]);
    assert_eq!(
        (texts(&applied.warnings), applied.compiled_routes),
        (vec![], 0)
    );
    check(true);
    // A server's is not shown to nodes; nor is one that is switched off, or gone.
    graph.accept([put("ssls/own", certificate("x.com"))]);
    check(false);
    graph.accept([put("ssls/own", certificate(""))]);
    check(true);
    let mut off = certificate("");
    off["status"] = json!(0);
    let applied = graph.accept([put("ssls/own", off)]);
    let told = texts(&applied.warnings);
    assert!(
        told.len() == 1 && told[0].contains("none of their nodes is asked"),
        "{told:?}"
    );
    check(false);
    graph.accept([put("ssls/own", certificate(""))]);
    check(true);
    graph.accept([delete("ssls/own")]);
    check(false);
    // Another name, and what the first one does is nothing to it any more.
    graph.accept([
        put("ssls/other", certificate("")),
        put("ssls/own", certificate("")),
    ]);
    graph.accept([
        put("upstreams/u", named("other")),
        put(
            "routes/inside",
            json!({"uri": "/b", "upstream": named("other")}),
        ),
    ]);
    graph.accept([delete("ssls/own")]);
    check(true);
}
