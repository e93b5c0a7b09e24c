//! The handle that routes hold, and the choice of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::balance::Wheel;
use super::node::{InFlight, Node, NodeSpec};
use super::{Balance, UpstreamSpec, peer};

/// An upstream: one identity for as long as something refers to it.
pub struct Upstream {
    /// The resource it belongs to, such as `upstreams/1` or `routes/7`.
    pub key: Arc<str>,
    shape: ArcSwap<Shape>,
    /// Whose turn it is. Outlives every change of the nodes.
    turn: AtomicU64,
}

/// The current configuration of an upstream. Immutable; replaced as a whole.
pub struct Shape {
    /// The settings.
    pub spec: UpstreamSpec,
    /// All nodes, in configured order; none while their certificate is missing.
    pub nodes: Vec<Arc<Node>>,
    /// Nodes of one priority each, the highest first.
    groups: Vec<Group>,
}

struct Group {
    /// Positions in `Shape::nodes`.
    members: Vec<usize>,
    wheel: Wheel,
}

/// Nodes that this request has tried already, by identity.
pub type Tried = SmallVec<[usize; 2]>;

/// A node's identity: nodes live on across changes, so their address names them.
pub fn identity(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// Why no node could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNode {
    /// The upstream has no nodes at all.
    Empty,
    /// Every node was tried.
    Exhausted,
}

impl Upstream {
    /// A new handle.
    pub fn new(key: Arc<str>, spec: UpstreamSpec) -> Upstream {
        let shape = Shape::new(spec, None);
        Upstream {
            key,
            shape: ArcSwap::from_pointee(shape),
            turn: AtomicU64::new(0),
        }
    }

    /// Replaces the configuration; nodes with the same host and port live on.
    pub fn update(&self, spec: UpstreamSpec) {
        let old = self.shape.load_full();
        if old.spec != spec {
            self.shape.store(Arc::new(Shape::new(spec, Some(&old))));
        }
    }

    /// The current configuration.
    pub fn shape(&self) -> Arc<Shape> {
        self.shape.load_full()
    }

    /// Whether its nodes are spoken to in HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        self.shape.load().spec.scheme.is_http2()
    }

    /// Chooses a node that was not tried yet and counts the request as in flight on it. As in
    /// APISIX, an only node is chosen again, unless the balance is least_conn.
    ///
    /// # Errors
    /// When there is nothing to choose from.
    pub fn pick(&self, shape: &Shape, tried: &Tried) -> Result<InFlight, NoNode> {
        let turn = || self.turn.fetch_add(1, Ordering::Relaxed);
        choose(shape, tried, turn).map(|node| InFlight::enter(Arc::clone(node)))
    }

    /// The node that [`pick`](Self::pick) would choose now, for a request that is only talked
    /// about: nobody's turn is taken.
    ///
    /// # Errors
    /// When there is nothing to choose from.
    pub fn preview(&self, shape: &Shape) -> Result<Arc<Node>, NoNode> {
        let turn = || self.turn.load(Ordering::Relaxed);
        choose(shape, &Tried::new(), turn).map(Arc::clone)
    }
}

fn choose<'s>(
    shape: &'s Shape,
    tried: &Tried,
    turn: impl Fn() -> u64,
) -> Result<&'s Arc<Node>, NoNode> {
    if shape.nodes.is_empty() {
        return Err(NoNode::Empty);
    }
    if let [only] = &shape.nodes[..]
        && shape.spec.balance != Balance::LeastConn
    {
        return Ok(only);
    }
    for group in &shape.groups {
        let found = match shape.spec.balance {
            Balance::RoundRobin => by_turn(shape, group, tried, turn()),
            Balance::LeastConn => least_busy(shape, group, tried),
        };
        if let Some(node) = found {
            return Ok(node);
        }
    }
    Err(NoNode::Exhausted)
}

fn by_turn<'s>(shape: &'s Shape, group: &Group, tried: &Tried, turn: u64) -> Option<&'s Arc<Node>> {
    let first = &shape.nodes[group.members[group.wheel.at(turn)?]];
    if !tried.contains(&identity(first)) {
        return Some(first);
    }
    // A retry: the turns that follow, then whoever is left in order.
    (1..group.wheel.round().min(group.members.len() as u64 * 2))
        .filter_map(|step| group.wheel.at(turn + step))
        .chain(group.takers(shape))
        .map(|member| &shape.nodes[group.members[member]])
        .find(|node| !tried.contains(&identity(node)))
}

impl Group {
    /// Members that take requests, as positions in `members`.
    fn takers<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = usize> + 'a {
        let all_zero = self
            .members
            .iter()
            .all(|&m| shape.spec.nodes[m].weight == 0);
        (0..self.members.len())
            .filter(move |&i| all_zero || shape.spec.nodes[self.members[i]].weight > 0)
    }
}

fn least_busy<'s>(shape: &'s Shape, group: &Group, tried: &Tried) -> Option<&'s Arc<Node>> {
    group
        .takers(shape)
        .map(|i| group.members[i])
        .filter(|&m| !tried.contains(&identity(&shape.nodes[m])))
        // (1 + in flight) / weight, compared across by multiplication.
        .min_by(|&a, &b| {
            let load = |m: usize| 1 + u64::from(shape.nodes[m].in_flight.load(Ordering::Relaxed));
            let weight = |m: usize| u64::from(shape.spec.nodes[m].weight.max(1));
            (load(a) * weight(b)).cmp(&(load(b) * weight(a)))
        })
        .map(|m| &shape.nodes[m])
}

impl Shape {
    fn new(spec: UpstreamSpec, old: Option<&Shape>) -> Shape {
        let rebuild = old.is_some_and(|old| peer::differs(&old.spec, &spec));
        let wanted: &[NodeSpec] = match spec.lacks_cert() {
            true => &[],
            false => &spec.nodes,
        };
        let nodes: Vec<Arc<Node>> = wanted
            .iter()
            .map(|wanted| {
                let same = |node: &&Arc<Node>| node.host == wanted.host && node.port == wanted.port;
                match old.and_then(|old| old.nodes.iter().find(same)) {
                    Some(node) => {
                        if rebuild {
                            node.rebuild(|addr| peer::peer(&spec, addr));
                        }
                        Arc::clone(node)
                    }
                    None => Arc::new(Node::new(wanted, |addr| peer::peer(&spec, addr))),
                }
            })
            .collect();
        let mut priorities: Vec<i32> = wanted.iter().map(|node| node.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let groups = priorities
            .into_iter()
            .map(|priority| {
                let members: Vec<usize> = (0..nodes.len())
                    .filter(|&i| spec.nodes[i].priority == priority)
                    .collect();
                let weights: Vec<u32> = members.iter().map(|&i| spec.nodes[i].weight).collect();
                Group {
                    members,
                    wheel: Wheel::new(&weights),
                }
            })
            .collect();
        Shape {
            spec,
            nodes,
            groups,
        }
    }

    /// Further tries after the first one.
    pub fn retries(&self) -> u32 {
        let others = u32::try_from(self.nodes.len().saturating_sub(1)).unwrap_or(u32::MAX);
        self.spec.retries.unwrap_or(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::NodeSpec;

    fn spec(nodes: &[(&str, u32, i32)]) -> UpstreamSpec {
        let node = |&(host, weight, priority): &(&str, u32, i32)| NodeSpec {
            host: host.into(),
            port: 80,
            weight,
            priority,
        };
        UpstreamSpec {
            nodes: nodes.iter().map(node).collect(),
            ..UpstreamSpec::default()
        }
    }

    fn upstream(nodes: &[(&str, u32, i32)]) -> Upstream {
        Upstream::new("upstreams/1".into(), spec(nodes))
    }

    /// Tries until none is left; gives the hosts in order.
    fn tries(upstream: &Upstream) -> Vec<String> {
        let (shape, mut tried, mut hosts) = (upstream.shape(), Tried::new(), Vec::new());
        while let Ok(picked) = upstream.pick(&shape, &tried) {
            tried.push(identity(picked.node()));
            hosts.push(picked.node().host.to_string());
        }
        hosts
    }

    #[test]
    fn a_retry_never_returns_to_a_tried_node_and_uses_lower_priorities_last() {
        let upstream = upstream(&[
            ("127.0.0.3", 1, -1),
            ("127.0.0.1", 5, 0),
            ("127.0.0.2", 1, 0),
        ]);
        for _ in 0..6 {
            let hosts = tries(&upstream);
            assert_eq!(hosts.len(), 3, "{hosts:?}");
            assert_eq!(hosts[2], "127.0.0.3");
        }
    }

    #[test]
    fn a_preview_is_the_next_choice_and_takes_nobodys_turn() {
        for balance in [Balance::RoundRobin, Balance::LeastConn] {
            let spec = UpstreamSpec {
                balance,
                ..spec(&[
                    ("127.0.0.1", 3, 0),
                    ("127.0.0.2", 2, 0),
                    ("127.0.0.3", 9, -1),
                ])
            };
            let upstream = Upstream::new("u".into(), spec);
            let shape = upstream.shape();
            let mut busy = Vec::new();
            for _ in 0..10 {
                let seen = [0; 3].map(|_| upstream.preview(&shape).unwrap());
                let picked = upstream.pick(&shape, &Tried::new()).unwrap();
                assert!(seen.iter().all(|node| Arc::ptr_eq(node, picked.node())));
                busy.push(picked);
            }
        }
    }

    #[test]
    fn weight_zero_takes_nothing_even_on_retry() {
        assert_eq!(
            tries(&upstream(&[("127.0.0.1", 0, 0), ("127.0.0.2", 1, 0)])),
            ["127.0.0.2"]
        );
        assert_eq!(
            tries(&upstream(&[("127.0.0.1", 0, 0), ("127.0.0.2", 0, 0)])).len(),
            2
        );
    }

    #[test]
    fn an_only_node_is_chosen_again_but_not_by_least_conn() {
        let check = |balance, again: bool| {
            let upstream = Upstream::new(
                "u".into(),
                UpstreamSpec {
                    balance,
                    ..spec(&[("127.0.0.1", 1, 0)])
                },
            );
            let shape = upstream.shape();
            let first = upstream.pick(&shape, &Tried::new()).unwrap();
            let tried = Tried::from_iter([identity(first.node())]);
            assert_eq!(upstream.pick(&shape, &tried).is_ok(), again, "{balance:?}");
        };
        check(Balance::RoundRobin, true);
        check(Balance::LeastConn, false);
    }

    #[test]
    fn no_nodes_is_its_own_answer() {
        let upstream = upstream(&[]);
        assert_eq!(
            upstream.pick(&upstream.shape(), &Tried::new()).err(),
            Some(NoNode::Empty)
        );
    }

    #[test]
    fn a_surviving_node_is_the_same_object_after_an_update() {
        let upstream = upstream(&[("127.0.0.1", 1, 0), ("127.0.0.2", 1, 0)]);
        let before = upstream.shape();
        let held = upstream.pick(&before, &Tried::new()).unwrap();
        upstream.update(spec(&[
            ("127.0.0.2", 9, 0),
            ("127.0.0.1", 1, 0),
            ("127.0.0.9", 1, 0),
        ]));
        let after = upstream.shape();
        assert!(Arc::ptr_eq(&before.nodes[0], &after.nodes[1]));
        assert!(Arc::ptr_eq(&before.nodes[1], &after.nodes[0]));
        assert_eq!(held.node().in_flight.load(Ordering::Relaxed), 1);
        drop(held);
        assert_eq!(after.nodes[1].in_flight.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn least_conn_prefers_the_idle_node() {
        let mut conf = spec(&[("127.0.0.1", 1, 0), ("127.0.0.2", 1, 0)]);
        conf.balance = Balance::LeastConn;
        let upstream = Upstream::new("u".into(), conf);
        let shape = upstream.shape();
        let a = upstream.pick(&shape, &Tried::new()).unwrap();
        let b = upstream.pick(&shape, &Tried::new()).unwrap();
        assert!(!Arc::ptr_eq(a.node(), b.node()));
    }
}
