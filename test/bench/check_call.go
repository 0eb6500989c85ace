package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"google.golang.org/grpc/metadata"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// checkTimed compares checks where every second binding has an end with those where none has, in time of the processor.
// The two take turns.
func (m *measurement) checkTimed(ctx context.Context, d dataset, plain *authz.Checker) {
	t := m.timedBindings(ctx, m.bench.rows)
	s, timed, _ := load(ctx, t.url)
	defer func() { check(s.Close()) }()
	rate := func(c *authz.Checker, all []question) float64 {
		used := processorTime()
		for i := range checkCalls {
			q := &all[i%len(all)]
			check(c.Require(q.ctx, resource.GroupsList, q.group))
		}
		return checkCalls / (processorTime() - used).Seconds()
	}
	with, without := t.allowed(timed), d.allowed(plain)
	rate(timed, with)
	rate(plain, without)
	var a, b []float64
	for range useTurns {
		b, a = append(b, rate(plain, without)), append(a, rate(timed, with))
	}
	m.faster("check: allowed, half of the bindings timed", rates{a: median(a), b: median(b), ratio: median(a) / median(b)}, 0)
}

// allowed returns questions whose answer is yes.
func (d dataset) allowed(c *authz.Checker) (all []question) {
	random := rand.New(rand.NewPCG(5, 5))
	for len(all) < questions {
		identity := d.identity(random.IntN(d.identities))
		held := c.GrantsOf(identity)
		h := held[random.IntN(len(held))]
		if h.Capabilities.Has(resource.GroupsList) {
			all = append(all, question{callerOf(identity), h.Group + resource.UID(segment(random)+segment(random))})
		}
	}
	return all
}

// accessCalls compares CheckAccess over gRPC with a call that does nothing but authenticate: the verdict alone, and with the
// bindings that give it, which are read from the database. It also compares it with itself where every second binding has an end.
func accessCalls(ctx context.Context, m *measurement) {
	plain := m.asker(ctx, m.bindings(ctx, m.bench.rows))
	empty := func(ctx context.Context, _ int) error {
		_, err := plain.access.GetVersion(plain.in(ctx), &accesspb.GetVersionRequest{})
		return err
	}
	m.compareRates(ctx, "call: CheckAccess, the verdict alone, beside an empty call", 0.7, plain.ask(true), empty)
	m.compareRates(ctx, "call: CheckAccess beside an empty call", 0.7, plain.ask(false), empty)
	timed := m.asker(ctx, m.timedBindings(ctx, m.bench.rows))
	m.compareRates(ctx, "call: CheckAccess, half of the bindings timed, beside none", 0.95, timed.ask(false), plain.ask(false))
}

// An asker asks a server about those who hold something.
type asker struct {
	access accesspb.AccessServiceClient
	token  string
	asked  []*accesspb.CheckAccessRequest // whose answer is yes
}

func (m *measurement) asker(ctx context.Context, d dataset) asker {
	db, c, _ := load(ctx, d.url)
	random := rand.New(rand.NewPCG(9, 9))
	var a asker
	for len(a.asked) < questions {
		identity := d.identity(random.IntN(d.identities))
		held := c.GrantsOf(identity)
		if h := held[random.IntN(len(held))]; h.Capabilities.Has(resource.GroupsList) {
			a.asked = append(a.asked, &accesspb.CheckAccessRequest{
				IdentityUid: string(identity), Capability: resource.GroupsList.String(), PlaceUid: string(h.Group),
			})
		}
	}
	check(db.Close())
	s := m.serve(ctx, d.url)
	a.access, a.token = accesspb.NewAccessServiceClient(m.dial(s.address)), s.token
	return a
}

func (a asker) in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token)
}

// ask returns a call of CheckAccess, with or without the bindings.
func (a asker) ask(verdict bool) operation {
	next := pick(a.asked)
	return func(ctx context.Context, client int) error {
		q := next(client)
		got, err := a.access.CheckAccess(a.in(ctx), &accesspb.CheckAccessRequest{
			IdentityUid: q.IdentityUid, Capability: q.Capability, PlaceUid: q.PlaceUid, VerdictOnly: verdict,
		})
		if err == nil && (!got.GetAllowed() || verdict != (len(got.GetGrants()) == 0)) {
			err = errors.New("the answer of CheckAccess is wrong")
		}
		return err
	}
}
