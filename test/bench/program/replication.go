package program

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	copyClients = 4 // clients of the baseline; a replication copies as many tags at the same time
	copyPoll    = 100 * time.Millisecond
	copyLimit   = 30 * time.Minute // longest time that the copies may take
)

// Replications copies many tags to a second Holdfast, each with a manifest of its own. The baseline is the slower side:
// as many clients pull the manifests by tag from the source, or ask the target for the same manifests and push them.
// All programs share the processors of this machine.
func Replications(ctx context.Context, m *rig.Measurement) {
	near := m.StartHoldfastd(ctx, "", rig.EmptyDatabase(ctx, m.Engine, "source"))
	far := m.StartHoldfastd(ctx, "", rig.EmptyDatabase(ctx, m.Engine, "target"))
	rig.Must(far.Post(ctx, "/iam/v2beta1/groups/"+string(far.Dev.Organization), `{"name": "copies"}`))
	bodies := make([][]byte, m.Images)
	next := rig.SmallImages(ctx, near, "app")
	rig.SmallImages(ctx, far, "app")
	for i := range bodies {
		bodies[i] = next()
	}
	tag := func(i int) string { return fmt.Sprintf("v%d", i) }
	eachTag(len(bodies), func(i int) error { return near.PutManifest(ctx, "app", tag(i), bodies[i]) })
	pulls := eachTag(len(bodies), func(i int) error {
		_, err := near.Get(ctx, "/v2/dev/app/manifests/"+tag(i))
		return err
	})
	pushes := eachTag(len(bodies), func(i int) error {
		path := "/v2/dev/app/manifests/" + rig.DigestOf(bodies[i])
		if _, _, err := far.Do(ctx, http.StatusNotFound, http.MethodHead, path, nil); err != nil {
			return err
		}
		return far.PutManifest(ctx, "app", tag(i), bodies[i])
	})
	begin := time.Now()
	uid := rig.Must(near.Post(ctx, "/oci/v1/replications/"+string(near.Dev.Organization), fmt.Sprintf(
		`{"name": "far", "address": %q, "path": "dev/copies", "credentials": "_token:%s"}`, far.Address,
		far.Dev.RegistryToken)))
	var r struct{ State, SuccessTime, LastError string }
	for path := "/oci/v1/replications/" + uid; r.State != "REPLICATION_STATE_IDLE" || r.SuccessTime == ""; {
		time.Sleep(copyPoll)
		r.State, r.SuccessTime = "", ""
		rig.Check(near.DoJSON(ctx, http.MethodGet, path, nil, &r))
		if r.LastError != "" || time.Since(begin) > copyLimit {
			rig.Check(fmt.Errorf("the replication is %s: %s", r.State, r.LastError))
		}
	}
	took := time.Since(begin)
	for i := 0; i < len(bodies); i += max(1, len(bodies)/100) {
		rig.Must(far.Get(ctx, "/v2/dev/copies/app/manifests/"+tag(i)))
	}
	perTag := func(d time.Duration) time.Duration { return d / time.Duration(len(bodies)) }
	m.Slower(fmt.Sprintf("replication: %d tags to a second Holdfast, per tag, against the slower side", len(bodies)),
		rig.NewPair(perTag(took), perTag(max(pulls, pushes))), 1/0.8)
	m.Note("replication: %.0f tags a second; four clients pull %.0f a second from the source, and push %.0f.",
		1/perTag(took).Seconds(), 1/perTag(pulls).Seconds(), 1/perTag(pushes).Seconds())
}

// eachTag calls f for each of n tags on copyClients clients, and returns the time that it took.
func eachTag(n int, f func(i int) error) time.Duration {
	var last atomic.Int64
	begin := time.Now()
	rig.Check(rig.Concurrently(copyClients, func(int) error {
		for i := int(last.Add(1)) - 1; i < n; i = int(last.Add(1)) - 1 {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	}))
	return time.Since(begin)
}
