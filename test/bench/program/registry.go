package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	mediumLayer = 10 << 20
	layerSize   = 100 << 20
	layerTurns  = 9
	manyPushes  = 1000
	hugeLayer   = 2 << 30
	manyTags    = 10_000
	fewTags     = 100
	pullClients = 200
	pulledLayer = 5 << 20
	crowd       = 1000
	crowdLayer  = 50 << 20
)

// Registry compares our registry with the registry "distribution", with the same content and the same client. Each
// server runs in a process of its own and syncs its writes to disk.
func Registry(ctx context.Context, m *rig.Measurement) {
	ours := m.StartHoldfastd(ctx, "", rig.EmptyDatabase(ctx, m.Engine, "registry"),
		// All clients have the same address in this measurement.
		fmt.Sprintf("HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS=%d", 2*crowd))
	theirs := m.StartDistribution(ctx)
	hugePush(ctx, m, ours, theirs) // comes first, because it measures the memory of servers without earlier requests
	compareLayers(ctx, m, ours, theirs, mediumLayer)
	compareLayers(ctx, m, ours, theirs, layerSize)
	compareManifests(ctx, m, ours, theirs)
	tagLists(ctx, m, ours)
	concurrentPulls(ctx, m, ours)
	crowdedPulls(ctx, m, ours)
	rig.Check(errors.Join(ours.Stop(), theirs.Stop()))
	memoryAfterPushes(ctx, m)
}

// compareLayers pushes big layers to both servers and pulls them, alternately. Every layer is new.
func compareLayers(ctx context.Context, m *rig.Measurement, ours, theirs *rig.Process, size int) {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // Read never fails
	var push, pull, chunked [2][]time.Duration
	for i := range layerTurns + 1 {
		binary.BigEndian.PutUint64(content, uint64(i))
		digest := rig.DigestOf(content)
		for side, d := range []*rig.Process{ours, theirs} {
			begin := time.Now()
			rig.Check(d.PushBlob(ctx, "layers", bytes.NewReader(content), func() string { return digest }))
			pushed := time.Now()
			rig.Must(d.Get(ctx, "/v2/"+d.Prefix+"layers/blobs/"+digest))
			pulled := time.Now()
			rig.Check(d.PushChunks(ctx, "chunks", content, digest))
			if i > 0 { // the first turn is for warm-up
				push[side], pull[side] = append(push[side], pushed.Sub(begin)), append(pull[side], pulled.Sub(pushed))
				chunked[side] = append(chunked[side], time.Since(pulled))
			}
		}
	}
	megabytes := fmt.Sprintf("%d MB", size>>20)
	m.Slower("registry: push "+megabytes, rig.NewPair(rig.Median(push[0]), rig.Median(push[1])), 1)
	m.Slower("registry: pull "+megabytes, rig.NewPair(rig.Median(pull[0]), rig.Median(pull[1])), 1)
	if size > rig.ChunkSize {
		m.Slower("registry: push "+megabytes+" in chunks of 10 MB",
			rig.NewPair(rig.Median(chunked[0]), rig.Median(chunked[1])), 1)
	}
}

// crowdedPulls lets a thousand clients pull one big layer concurrently, and checks that no client waits much longer
// than the others.
func crowdedPulls(ctx context.Context, m *rig.Measurement, ours *rig.Process) {
	layer := make([]byte, crowdLayer)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(layer) // Read never fails
	digest := rig.DigestOf(layer)
	rig.Check(ours.PushBlob(ctx, "big-crowd", bytes.NewReader(layer), func() string { return digest }))
	ours.ResetPeak()
	took := make([]time.Duration, crowd)
	err := rig.Concurrently(crowd, func(i int) error {
		begin := time.Now()
		_, err := ours.Get(ctx, "/v2/dev/big-crowd/blobs/"+digest) // Get fails if the response is cut short
		took[i] = time.Since(begin)
		return err
	})
	rig.Check(err)
	m.Slower("registry: 1,000 pulls of 50 MB at once, p99 against the median",
		rig.NewPair(rig.Quantile(took, 0.99), rig.Median(took)), 3)
	m.Below("registry: memory of the server in 1,000 pulls at once", ours.Memory("VmHWM"), 300e6, rig.Megabytes)
}

// memoryAfterPushes compares the memory of both servers after many pushes of small images. The servers have handled
// no other requests. Most of the memory is the part of the program file that has been read from the disk.
func memoryAfterPushes(ctx context.Context, m *rig.Measurement) {
	ours, theirs := m.StartHoldfastd(ctx, "", rig.EmptyDatabase(ctx, m.Engine, "pushes")), m.StartDistribution(ctx)
	var held [2]float64
	for side, d := range []*rig.Process{ours, theirs} {
		for i := range manyPushes {
			next := rig.SmallImages(ctx, d, fmt.Sprintf("many%d", i%10))
			rig.Check(d.PutManifest(ctx, fmt.Sprintf("many%d", i%10), fmt.Sprintf("v%d", i), next()))
		}
		held[side] = d.Memory("VmRSS")
	}
	m.Below("registry: memory held after 1,000 pushes", held[0], 80e6, rig.Megabytes)
	m.Below("registry: of which is not the program", ours.Memory("RssAnon"), 0, rig.Megabytes)
	m.Below("registry: memory that distribution holds then", held[1], 0, rig.Megabytes)
}

// compareManifests compares how fast both servers read and write manifests by tag.
func compareManifests(ctx context.Context, m *rig.Measurement, ours, theirs *rig.Process) {
	var get, head, list, put, push [2]rig.Operation
	for side, d := range []*rig.Process{ours, theirs} {
		next := rig.SmallImages(ctx, d, "manifests")
		for i := range fewTags {
			rig.Check(d.PutManifest(ctx, "manifests", fmt.Sprintf("v%d", i), next()))
		}
		read := func(method string) rig.Operation {
			return func(ctx context.Context, client int) error {
				path := fmt.Sprintf("/v2/%smanifests/manifests/v%d", d.Prefix, client)
				_, _, err := d.Do(ctx, http.StatusOK, method, path, nil, "Accept", rig.ImageMediaType)
				return err
			}
		}
		get[side], head[side] = read(http.MethodGet), read(http.MethodHead)
		list[side] = d.Getter("/v2/" + d.Prefix + "manifests/tags/list")
		rig.SmallImages(ctx, d, "put")
		var tag atomic.Int64
		put[side] = func(ctx context.Context, _ int) error {
			return d.PutManifest(ctx, "put", fmt.Sprintf("t%d", tag.Add(1)), next())
		}
		push[side] = func(ctx context.Context, _ int) error { return pushSmall(ctx, d, tag.Add(1)) }
	}
	m.Faster("registry: GET manifest", rig.Race(ctx, get[0], get[1]), 2.5)
	m.Faster("registry: HEAD manifest", rig.Race(ctx, head[0], head[1]), 2.5)
	m.Faster("registry: list 100 tags", rig.Race(ctx, list[0], list[1]), 2.5)
	m.Faster("registry: PUT manifest and tag", rig.Race(ctx, put[0], put[1]), 2)
	m.Faster("registry: push an image of 5 small layers", rig.Race(ctx, push[0], push[1]), 2.5)
}

// pushSmall pushes an image with five small layers that the server does not have yet.
func pushSmall(ctx context.Context, d *rig.Process, n int64) error {
	var parts []string
	for i := range 5 {
		layer := fmt.Appendf(nil, "layer %d of image %d", i, n)
		if err := d.PushBlob(ctx, "small", bytes.NewReader(layer), func() string { return rig.DigestOf(layer) }); err != nil {
			return err
		}
		parts = append(parts, rig.Descriptor(rig.DigestOf(layer), len(layer)))
	}
	const manifest = `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`
	body := fmt.Appendf(nil, manifest, rig.ImageMediaType, parts[0], strings.Join(parts, ","))
	return d.PutManifest(ctx, "small", fmt.Sprintf("t%d", n), body)
}

// tagLists compares the tag list of a repo with many tags with the tag list of a repo with few tags.
func tagLists(ctx context.Context, m *rig.Measurement, ours *rig.Process) {
	for repo, n := range map[string]int{"many": manyTags, "few": fewTags} {
		manifest := rig.SmallImages(ctx, ours, repo)()
		for i := 0; i < n; i += 50 {
			query := "?"
			for k := range 50 {
				query += fmt.Sprintf("tag=t%d&", i+k)
			}
			rig.Check(ours.PutManifest(ctx, repo, rig.DigestOf(manifest)+query, manifest))
		}
	}
	var got struct{ Repos []struct{ UID, Name string } }
	rig.Check(ours.DoJSON(ctx, http.MethodGet, "/registry/v2beta1/repos?page_size=200", nil, &got))
	uids := map[string]string{}
	for _, repo := range got.Repos {
		uids[repo.Name] = repo.UID
	}
	const tags = "/registry/v2beta1/tags?uidp.children_of=%[2]s&page_size=50"
	for title, format := range map[string]string{
		"registry: page of 10,000 tags, protocol":    "/v2/dev/%[1]s/tags/list?n=50&last=t3",
		"registry: page of 10,000 tags, API":         tags,
		"registry: page of 10,000 tags, API by name": tags + "&order_by=name",
	} {
		page := func(repo string) rig.Operation { return ours.Getter(fmt.Sprintf(format, repo, uids[repo])) }
		m.Slower(title, rig.Alternate(ctx, page("many"), page("few")), 1.5)
	}
}

// concurrentPulls lets many clients pull one image concurrently. It counts failed pulls and measures the memory.
func concurrentPulls(ctx context.Context, m *rig.Measurement, ours *rig.Process) {
	layer := make([]byte, pulledLayer)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(layer) // Read never fails
	digest := rig.DigestOf(layer)
	rig.Check(ours.PushBlob(ctx, "crowd", bytes.NewReader(layer), func() string { return digest }))
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"layers":[%s]}`, rig.Descriptor(digest, len(layer)))
	rig.Check(ours.PutManifest(ctx, "crowd", "v1", manifest))
	rest := ours.ResetPeak()
	var failed atomic.Int64
	_ = rig.Concurrently(pullClients, func(int) error { // failed pulls are counted instead
		for _, path := range []string{"manifests/v1", "blobs/" + digest} {
			if _, err := ours.Get(ctx, "/v2/dev/crowd/"+path); err != nil {
				failed.Add(1)
				return err
			}
		}
		return nil
	})
	m.Exactly("registry: 200 pulls at once that failed", failed.Load(), 0)
	m.Below("registry: memory for 200 pulls at once, above rest", max(0, ours.Memory("VmHWM")-rest), 0, rig.Megabytes)
}

// hugePush pushes a very big layer to both servers, and measures the time and the memory that the push needs.
func hugePush(ctx context.Context, m *rig.Measurement, ours, theirs *rig.Process) {
	var took [2]time.Duration
	for side, d := range []*rig.Process{ours, theirs} {
		rest := d.ResetPeak()
		h := sha256.New()
		body := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{3}), hugeLayer), h)
		begin := time.Now()
		rig.Check(d.PushBlob(ctx, "huge", body, func() string { return fmt.Sprintf("sha256:%x", h.Sum(nil)) }))
		took[side] = time.Since(begin)
		if side == 0 {
			m.Below("registry: memory for a push of 2 GB, above rest", max(0, d.Memory("VmHWM")-rest), 64<<20, rig.Megabytes)
		}
	}
	m.Slower("registry: push 2 GB", rig.NewPair(took[0], took[1]), 0)
}
