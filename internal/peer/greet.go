package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"time"
)

// greeter is one node's part in greetings.
type greeter struct {
	self   func() Hello // ours, with the cluster of the moment
	secret []byte
}

func (g *greeter) greeting(p purpose, to NodeID) *greeting {
	out := &greeting{Hello: g.self(), purpose: p, secret: len(g.secret) > 0, to: to}
	rand.Read(out.nonce[:])
	return out
}

// dial greets on a connection we dialled. to is who we expect, 0 for anybody.
// An error may come with the other side's Hello.
func (g *greeter) dial(conn io.ReadWriter, p purpose, to NodeID) (Hello, error) {
	own := g.greeting(p, to)
	hello := appendGreeting(nil, own)
	if _, err := conn.Write(hello); err != nil {
		return Hello{}, err
	}
	c, rawChallenge, err := readChallenge(conn)
	switch {
	case err != nil:
		return Hello{}, err
	case c.refused.err() == ErrVersion || c.least > own.Most || c.most < own.Least:
		return Hello{}, fmt.Errorf("%w: it speaks %d to %d, this node %d to %d", ErrVersion, c.least, c.most, own.Least, own.Most)
	case c.refused.err() == ErrSecret || c.secret != own.secret:
		return Hello{}, secretsDiffer(own.secret, c.secret)
	case c.refused != 0:
		return Hello{}, c.refused.err()
	}
	proof := prove(g.secret, roleDials, hello, rawChallenge)
	if _, err := conn.Write(proof); err != nil {
		return Hello{}, err
	}
	var verdict [2]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return Hello{}, cutOff(err)
	}
	refused := refusal(verdict[0]).err()
	if verdict[1] != 1 {
		if refused == nil {
			refused = fmt.Errorf("%w: an empty verdict", ErrGarbage)
		}
		return Hello{}, refused
	}
	its, rawHello, err := readGreeting(conn, own.Least, own.Most)
	if err != nil {
		return Hello{}, err
	}
	var its2 [proofSize]byte
	if _, err := io.ReadFull(conn, its2[:]); err != nil {
		return Hello{}, cutOff(err)
	}
	if len(g.secret) > 0 && !hmac.Equal(its2[:], prove(g.secret, roleAccepts, hello, rawChallenge, proof, verdict[:], rawHello)) {
		return Hello{}, fmt.Errorf("%w: it did not prove that it knows it", ErrSecret)
	}
	if err := judge(own, &its.Hello); err != nil && refused == nil {
		refused = err
	}
	if refused == nil && to != 0 && its.Node != to {
		refused = ErrOtherNode
	}
	if refused == ErrOtherNode {
		refused = fmt.Errorf("%w: node %d, not %d", ErrOtherNode, its.Node, to)
	}
	return its.Hello, explained(refused, own, &its)
}

// explained says more of why two nodes do not talk, where their greetings tell.
func explained(refused error, own, its *greeting) error {
	switch refused {
	case ErrLevel:
		return levelsDiffer(own.Levels, its.Levels)
	case ErrCluster:
		return fmt.Errorf("%w: it is in %v, this node in %v", ErrCluster, its.Cluster, own.Cluster)
	}
	return refused
}

// accept greets on a connection somebody dialled. decide has the last word; its
// answer is told. An error may come with the other side's greeting.
func (g *greeter) accept(conn io.ReadWriter, decide func(*greeting) error) (greeting, error) {
	own := g.greeting(0, 0)
	its, hello, err := readGreeting(conn, own.Least, own.Most)
	if hello == nil {
		return its, err
	}
	c := challenge{least: own.Least, most: own.Most, secret: own.secret, nonce: own.nonce}
	switch {
	case err == ErrVersion:
		c.refused = refusalOf(ErrVersion)
		err = fmt.Errorf("%w: it speaks %d to %d, this node %d to %d", ErrVersion, its.Least, its.Most, own.Least, own.Most)
	case err != nil:
		return its, err
	case its.secret != own.secret:
		c.refused = refusalOf(ErrSecret)
		err = secretsDiffer(own.secret, its.secret)
	}
	rawChallenge := appendChallenge(nil, &c)
	if _, e := conn.Write(rawChallenge); e != nil && err == nil {
		err = e
	}
	if err != nil {
		return its, err
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return its, cutOff(err)
	}
	if len(g.secret) > 0 && !hmac.Equal(proof[:], prove(g.secret, roleDials, hello, rawChallenge)) {
		if _, err := conn.Write([]byte{byte(refusalOf(ErrSecret)), 0}); err != nil {
			return its, err
		}
		return its, fmt.Errorf("%w: its proof is wrong", ErrSecret)
	}
	refused := judge(own, &its.Hello)
	if its.purpose == purposeProbe && (refused == ErrCluster || refused == ErrLevel) {
		refused = nil
	}
	if refused == nil && its.to != 0 && its.to != own.Node {
		refused = ErrOtherNode
	}
	if refused == nil {
		refused = decide(&its)
	}
	verdict := []byte{byte(refusalOf(refused)), 1}
	own.to, own.purpose = its.Node, its.purpose
	rand.Read(own.nonce[:])
	rawHello := appendGreeting(nil, own)
	answer := append(append([]byte(nil), verdict...), rawHello...)
	answer = append(answer, prove(g.secret, roleAccepts, hello, rawChallenge, proof[:], verdict, rawHello)...)
	if _, err := conn.Write(answer); err != nil && refused == nil {
		refused = err
	}
	return its, explained(refused, own, &its)
}

// judge says whether two nodes may talk at all.
func judge(own *greeting, its *Hello) error {
	switch {
	case its.Node == own.Node && its.Instance == own.Instance:
		return ErrSelf
	case its.Node == own.Node:
		return ErrSameNode
	case own.purpose != purposeProbe && differ(own.Cluster, its.Cluster):
		return ErrCluster
	case own.purpose != purposeProbe && !(own.Levels.knows(levelOf(own.Levels, its.Levels)) && its.Levels.knows(levelOf(own.Levels, its.Levels))):
		return ErrLevel
	}
	return nil
}

// levelOf is the level of the cluster: it only goes up, and one of the two may not have heard yet.
func levelOf(own, its Levels) uint16 { return max(own.Cluster, its.Cluster) }

// levelsDiffer says which of the two nodes does not know the level of the cluster.
func levelsDiffer(own, its Levels) error {
	who, level, knows := "the other node", levelOf(own, its), its
	if !own.knows(level) {
		who, knows = "this node", own
	}
	least, most := max(knows.Least, 1), max(knows.Most, 1)
	todo := "update it"
	if level < least {
		todo = "first run a version on all nodes that knows both"
	}
	return fmt.Errorf("%w: the cluster is at level %d, %s knows %d to %d: %s", ErrLevel, level, who, least, most, todo)
}

// differ says that both nodes are in a cluster, and not in the same.
func differ(a, b ClusterID) bool { return a != b && a != ClusterID{} && b != ClusterID{} }

func secretsDiffer(own, its bool) error {
	switch {
	case own && !its:
		return fmt.Errorf("%w: this node has one, the other has none", ErrSecret)
	case its && !own:
		return fmt.Errorf("%w: the other node has one, this one has none", ErrSecret)
	}
	return ErrSecret
}

// greetWithin bounds a greeting in time; the connection has no deadline afterwards.
func greetWithin(conn net.Conn, d time.Duration, greet func() error) error {
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if err := greet(); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
