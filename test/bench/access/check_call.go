package access

import (
	"context"
	"errors"
	"math/rand/v2"

	"google.golang.org/grpc/metadata"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// checkTimed compares the processor time of checks in two datasets. In one, every second binding has an expiry; in
// the other, none has. The checks alternate.
func checkTimed(ctx context.Context, m *rig.Measurement, d rig.Dataset, plain *authz.Checker) {
	t := m.TimedBindings(ctx, m.Bench.Rows)
	s, timed, _ := load(ctx, t.URL)
	defer func() { rig.Check(s.Close()) }()
	rate := func(c *authz.Checker, all []question) float64 {
		used := rig.ProcessorTime()
		for i := range checkCalls {
			q := &all[i%len(all)]
			rig.Check(c.Require(q.ctx, resource.GroupsList, q.group))
		}
		return checkCalls / (rig.ProcessorTime() - used).Seconds()
	}
	with, without := allowed(t, timed), allowed(d, plain)
	rate(timed, with)
	rate(plain, without)
	var a, b []float64
	for range useTurns {
		b, a = append(b, rate(plain, without)), append(a, rate(timed, with))
	}
	m.Faster("check: allowed, half of the bindings timed",
		rig.Rates{A: rig.Median(a), B: rig.Median(b), Ratio: rig.Median(a) / rig.Median(b)}, 0)
}

// allowed returns questions to which the checker answers yes.
func allowed(d rig.Dataset, c *authz.Checker) (found []question) {
	random := rand.New(rand.NewPCG(5, 5))
	for len(found) < questions {
		identity := d.Identity(random.IntN(d.Identities))
		held := c.GrantsOf(identity)
		h := held[random.IntN(len(held))]
		if h.Capabilities.Has(resource.GroupsList) {
			found = append(found,
				question{callerOf(identity), h.Group + resource.UID(rig.RandomSegment(random)+rig.RandomSegment(random))})
		}
	}
	return found
}

// Calls compares CheckAccess over gRPC with a call that only authenticates. CheckAccess returns either the verdict
// alone, or also the bindings that give access, which it reads from the database. The last comparison uses a dataset
// in which every second binding has an expiry.
func Calls(ctx context.Context, m *rig.Measurement) {
	plain := newAsker(ctx, m, m.Bindings(ctx, m.Bench.Rows))
	empty := func(ctx context.Context, _ int) error {
		_, err := plain.access.GetVersion(plain.in(ctx), &accesspb.GetVersionRequest{})
		return err
	}
	m.CompareRates(ctx, "call: CheckAccess, the verdict alone, beside an empty call", 0.7, plain.ask(true), empty)
	m.CompareRates(ctx, "call: CheckAccess beside an empty call", 0.7, plain.ask(false), empty)
	timed := newAsker(ctx, m, m.TimedBindings(ctx, m.Bench.Rows))
	m.CompareRates(ctx, "call: CheckAccess, half of the bindings timed, beside none", 0.95, timed.ask(false),
		plain.ask(false))
}

// An asker asks a server whether identities hold a capability.
type asker struct {
	access accesspb.AccessServiceClient
	token  string
	asked  []*accesspb.CheckAccessRequest // requests to which the server answers yes
}

func newAsker(ctx context.Context, m *rig.Measurement, d rig.Dataset) asker {
	db, c, _ := load(ctx, d.URL)
	random := rand.New(rand.NewPCG(9, 9))
	var a asker
	for len(a.asked) < questions {
		identity := d.Identity(random.IntN(d.Identities))
		held := c.GrantsOf(identity)
		if h := held[random.IntN(len(held))]; h.Capabilities.Has(resource.GroupsList) {
			a.asked = append(a.asked, &accesspb.CheckAccessRequest{
				IdentityUid: string(identity), Capability: resource.GroupsList.String(), PlaceUid: string(h.Group),
			})
		}
	}
	rig.Check(db.Close())
	s := m.Serve(ctx, d.URL)
	a.access, a.token = accesspb.NewAccessServiceClient(m.Dial(s.Address)), s.Token
	return a
}

func (a asker) in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token)
}

// ask returns an operation that calls CheckAccess. If verdict is set, the operation asks for the verdict alone.
func (a asker) ask(verdict bool) rig.Operation {
	next := rig.Distribute(a.asked)
	return func(ctx context.Context, client int) error {
		q := next(client)
		got, err := a.access.CheckAccess(a.in(ctx), &accesspb.CheckAccessRequest{
			IdentityUid: q.IdentityUid, Capability: q.Capability, PlaceUid: q.PlaceUid, VerdictOnly: verdict,
		})
		if err == nil && (!got.GetAllowed() || verdict != (len(got.GetGrants()) == 0)) {
			err = errors.New("CheckAccess returned a wrong answer")
		}
		return err
	}
}
