package groups

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// Gets compares reading a group in the big dataset with a server that has the response in memory.
func Gets(ctx context.Context, m *rig.Measurement) {
	d := m.Groups(ctx, m.Bench.Rows)
	s := m.Serve(ctx, d.URL)
	var uids []resource.UID // UIDs of equal length, so that the responses have equal length
	for uid := range d.All() {
		if uid.Parent() != d.Org {
			uids = append(uids, uid)
		}
	}
	rand.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	least := map[string]float64{"sqlite": 0.45, "postgres": 0.35}[m.Engine.Name()]
	const path = "/iam/v2beta1/groups/"
	header, body, err := s.Do(ctx, http.StatusOK, http.MethodGet, path+string(uids[0]), nil)
	rig.Check(err)
	header.Del("Date") // net/http sets this header itself
	address := m.ServeHandler(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.Write(body)
	}))
	picked := rig.Distribute(uids)
	get := func(c *rig.Client) rig.Operation {
		return func(ctx context.Context, client int) error {
			got, err := c.Get(ctx, path+string(picked(client)))
			if err == nil && len(got) != len(body) {
				err = fmt.Errorf("the response has %d bytes, want %d", len(got), len(body))
			}
			return err
		}
	}
	m.CompareRates(ctx, "GET of a group, HTTP / empty net/http handler", least, get(s.Client),
		get(rig.NewClient(address, s.Token)))
}
