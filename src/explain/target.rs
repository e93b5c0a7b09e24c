//! Where a request goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::From;
use super::refusal;
use super::report::{Answer, NodeSeen, UpstreamSeen};
use crate::proxy::fault::FaultKind;
use crate::proxy::head::host_for;
use crate::upstream::{Balance, Node, NodeSpec, PassHost, Upstream};

/// The upstream, and the gateway's own answer where there is no node.
pub(super) fn explain(
    upstream: &Upstream,
    authority: &[u8],
    from: From,
) -> (UpstreamSeen, Option<Answer>) {
    let shape = upstream.shape();
    let spec = &shape.spec;
    let picked = upstream.preview(&shape);
    let answer = match &picked {
        Ok(_) => None,
        Err(_) if spec.lacks_cert() => {
            let why = "the upstream's client certificate is missing".to_owned();
            Some(refusal(FaultKind::NoUpstream, Some(why), true))
        }
        Err(_) => Some(refusal(FaultKind::NoNodes, None, true)),
    };
    // The turn of a process that serves nothing says nothing, unless nobody else can have it.
    let certain = from == From::Running || shape.nodes.len() == 1;
    let next = picked.as_ref().ok().filter(|_| certain);
    let (pass_host, host) = match &spec.pass_host {
        PassHost::Pass => ("pass", Some(text(authority))),
        PassHost::Node => {
            let given = next.and_then(|node| host_for(spec, &node.host, node.port));
            ("node", given.map(|host| text(&host)))
        }
        PassHost::Rewrite(host) => ("rewrite", Some(host.to_string())),
    };
    let seen = UpstreamSeen {
        key: upstream.key.to_string(),
        scheme: spec.scheme.name().to_owned(),
        balance: match spec.balance {
            Balance::RoundRobin => "roundrobin",
            Balance::LeastConn => "least_conn",
        }
        .to_owned(),
        nodes: shape.nodes.iter().zip(&spec.nodes).map(node).collect(),
        next: next.map(|node| address(&node.host, node.port)),
        pass_host: pass_host.to_owned(),
        host,
        retries: shape.retries(),
    };
    (seen, answer)
}

fn node((node, spec): (&Arc<Node>, &NodeSpec)) -> NodeSeen {
    let ready = node.ready().filter(|_| node.is_domain());
    NodeSeen {
        host: spec.host.to_string(),
        port: spec.port,
        weight: spec.weight,
        priority: spec.priority,
        address: ready.map(|ready| ready.addr.ip().to_string()),
        in_flight: node.in_flight.load(Ordering::Relaxed),
    }
}

/// `host:port`, IPv6 in brackets.
pub(super) fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
