// Package escalation_test plays against the services with random moves, and fails if an identity gets a capability that
// nobody gave it.
//
// There are an honest side and attackers. The attackers share everything: tokens, links, invites, their own issuer, a
// user at the honest issuer, and a client of the honest issuer. So they have ID tokens of all users for that client.
// The honest side makes random moves, too, because many attacks need one: it binds roles, invites people, lets
// identities trust each other and hands out narrowed tokens.
//
// The attackers control an identity if they have a token of it, or can get one with an exchange or a sign-in alone.
// These rules hold after every move:
//
//   - The attackers hold a capability on a place only if they held it when the world began, created the organization,
//     or got the capability from the honest side. The honest side gives it to an identity that the attackers controlled
//     at that moment, or to the holder of a secret that the attackers have: an invite, a link that an honest person
//     made, a sign-in with a provider that accepts them, or a narrowed token with its capabilities.
//   - An honest person who gives a capability holds it at that moment.
//   - A person who gives a role on a place holds role_bindings.create there.
//   - The attackers only get tokens of identities that they control.
//   - A request of the attackers is refused if its caller loses the access while the request is in flight. The
//     attackers keep half-sent requests open while others make moves. In some moves, the honest side revokes access
//     between the authorization and the first write.
//
// A capability that an identity got before the attackers controlled it does not count as given to the attackers. This
// detects, for example, a link of an identity that still works after the identity has got more capabilities. If the
// giver looks up a user with the service and binds a role to the result, the role counts as given to the attackers only
// if they are that user.
//
// The capabilities of the attackers are computed twice: from the identities that they control, by the rules in this
// package, and by asking authz.Checker about every token that they have on every place. All moves go through the
// services with a token that token.Issuer.Verify and authz.Checker.Revoked accept. The tests only read the store.
package escalation_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

var (
	firstSeed = flag.Uint64("seed", 0, "of the first world; 0 takes one from the clock")
	duration  = flag.Duration("duration", time.Duration(testkit.Rounds(5, 10))*time.Second,
		"how long to play on each engine")
)

const (
	episode     = 70               // number of moves in a world after its opening moves
	shrinkLimit = 60 * time.Second // time limit for finding a shorter failing history
)

func TestEscalation(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() >> 10)
	}
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		began, moves, done, next := time.Now(), 0, 0, seed
		for ; done == 0 || time.Since(began) < *duration; next++ {
			history, wrong := x.play(t, next)
			moves += len(history)
			done++
			if wrong != nil {
				t.Fatalf("seed %d, after %v: %v\n%s", next, time.Since(began).Round(time.Second), wrong, x.explain(t, history))
			}
		}
		spent := time.Since(began)
		t.Logf("seeds %d to %d: %d worlds, %d moves, %.0f a second", seed, next-1, done, moves,
			float64(moves)/spent.Seconds())
		t.Logf("requests of the attackers that lost their access in flight: %d", x.lost)
		t.Logf("moves that were accepted, by the honest and by the attackers:%s", x.accepted())
	})
}

// accepted returns a text with the number of accepted moves by kind and side. It shows kinds that are never accepted
// and therefore prove nothing.
func (x *site) accepted() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, " %s %d+%d", k.name, x.counts[good][k.name], x.counts[evil][k.name])
	}
	return b.String()
}

// play plays one episode in a new world. It returns the moves, and an error if a rule is broken after the last one.
func (x *site) play(t *testing.T, seed uint64) (history []*script, wrong error) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	w := must(newWorld(t.Context(), x))(t)
	for n := range len(opening) + episode {
		planned, kindName := good, ""
		if n < len(opening) {
			planned, kindName = opening[n].side, opening[n].kind
		}
		s := &script{n: n + 1, rng: rng}
		m, wrong := w.step(s, planned, kindName)
		if m.stuck {
			continue
		}
		history = append(history, s)
		if wrong != nil {
			return history, wrong
		}
	}
	return history, w.tryEverything()
}

// replay repeats moves in a new world. It returns descriptions of the moves, and an error if a rule is broken. Moves
// that are not possible in the new world are skipped.
func (x *site) replay(t *testing.T, history []*script) (texts []string, wrong error) {
	t.Helper()
	w := must(newWorld(t.Context(), x))(t)
	for _, s := range history {
		m, wrong := w.step(&script{n: s.n, said: s.said}, good, "")
		if m.stuck {
			continue
		}
		texts = append(texts,
			fmt.Sprintf("%3d. the %s, as %s: %s", s.n, m.side, strings.TrimPrefix(m.actor.name, "a token of "), m.text))
		if wrong != nil {
			return texts, wrong
		}
	}
	return texts, w.tryEverything()
}

// explain returns a text with the shortest failing history that it can find.
func (x *site) explain(t *testing.T, history []*script) string {
	t.Helper()
	texts, wrong := x.replay(t, history)
	if wrong == nil {
		return fmt.Sprintf("The failure does not happen again when the moves are repeated. %d moves:\n%s", len(history),
			strings.Join(texts, "\n"))
	}
	began := time.Now()
	for size := len(history) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(history) && time.Since(began) < shrinkLimit; {
			shorter := slices.Delete(slices.Clone(history), at, at+size)
			if said, err := x.replay(t, shorter); err != nil {
				history, texts, wrong = shorter, said, err
			} else {
				at += size
			}
		}
	}
	return fmt.Sprintf("The shortest history that was found:\n%s\n     %v", strings.Join(texts, "\n"), wrong)
}
