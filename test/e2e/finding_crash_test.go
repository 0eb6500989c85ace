package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A brokenGallery records the acknowledged changes on a server that is killed repeatedly while it inspects images and
// matches their packages with advisories.
type brokenGallery struct {
	env   []string
	kills int

	mu sync.Mutex
	// By tag, the minor version of each package in the image. A nil map means that the image cannot be read.
	contents map[string]map[string]int
	fixed    map[string]galleryAdvisory // acknowledged advisories, by ID
	repeat   []func(*proc) error        // requests for which there was no answer
}

// A galleryAdvisory describes a vulnerability in a package before version 1.fixed.0.
type galleryAdvisory struct {
	name           string
	fixed, edition int
}

// TestFindingsCrash kills the server while it inspects images and matches packages. In the end every pushed image
// must be inspected, or marked as unreadable, and its findings must be equal to a full join of packages and
// advisories. HOLDFAST_TEST_KILLS sets the number of kills.
func TestFindingsCrash(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		kills := 4
		if strings.Contains(url, "://") {
			kills = 2
		}
		if n, err := strconv.Atoi(os.Getenv("HOLDFAST_TEST_KILLS")); err == nil {
			kills = n
		}
		dir := t.TempDir()
		w := &brokenGallery{
			env:      []string{"HOLDFAST_DATA_DIR=" + dir, "HOLDFAST_DATABASE=" + url, "HOLDFAST_INSPECT_WORKERS=2"},
			kills:    kills,
			contents: map[string]map[string]int{},
			fixed:    map[string]galleryAdvisory{},
		}
		for round := range kills {
			w.load(t, procStart(t, w.env...), round)
		}
		p := procStart(t, w.env...)
		w.again(t, p)
		w.survey(t, p)
		p.stop()
		t.Logf("%d kills, %d images, %d advisories", kills, len(w.contents), len(w.fixed))
	})
}

// again repeats the requests for which there was no answer, so that their outcome is certain.
func (w *brokenGallery) again(t *testing.T, p *proc) {
	t.Helper()
	for _, f := range w.repeat {
		if err := f(p); err != nil {
			t.Fatal(err)
		}
	}
	w.repeat = nil
}

// load pushes images and imports advisories until the server is killed.
func (w *brokenGallery) load(t *testing.T, p *proc, round int) {
	t.Helper()
	w.again(t, p)
	var loading sync.WaitGroup
	done := make(chan struct{}, 10_000)
	for who := range 3 {
		loading.Go(func() {
			for n := 0; ; n++ {
				f := w.push(fmt.Sprintf("r%d-%d-%d", round, who, n))
				if who == 2 {
					f = w.publish(round)
				}
				if err := f(p); err != nil {
					w.mu.Lock()
					w.repeat = append(w.repeat, f)
					w.mu.Unlock()
					return
				}
				done <- struct{}{}
			}
		})
	}
	for range 4 + rand.IntN(20) {
		<-done
	}
	time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, func() { _ = p.cmd.Process.Kill() })
	<-p.ended
	p.killed = true
	loading.Wait()
}

// push returns a function that pushes an image with packages. Every fifth image cannot be read.
func (w *brokenGallery) push(tag string) func(*proc) error {
	has := map[string]int{}
	for range 1 + rand.IntN(4) {
		has[fmt.Sprintf("p%d", rand.IntN(5))] = rand.IntN(5)
	}
	files := map[string]string{"app/tag": tag}
	for name, v := range has {
		files["app/node_modules/"+name+"/package.json"] = fmt.Sprintf(`{"name":%q,"version":"1.%d.0"}`, name, v)
	}
	text, err := packLayer(files)
	if err != nil {
		panic(err)
	}
	layer := []byte(text)
	if rand.IntN(5) == 0 {
		layer, has = append(layer[:len(layer)-20], tag...), nil
	}
	return func(p *proc) error {
		c := p.registry()
		ctx := context.Background()
		config := []byte(`{"os":"linux","architecture":"amd64"}`)
		for _, b := range [][]byte{config, layer} {
			if err := c.pushBlob(ctx, "dev/app", b); err != nil {
				return err
			}
		}
		m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},`+
			`"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
			manifestType, configType, ociDigest(config), len(config), layerType, ociDigest(layer), len(layer))
		_, _, err := c.expect(ctx, 201, "PUT", "/v2/dev/app/manifests/"+tag, []byte(m), "Content-Type", manifestType)
		if err == nil {
			w.mu.Lock()
			w.contents[tag] = has
			w.mu.Unlock()
		}
		return err
	}
}

// publish returns a function that imports a new advisory or a new version of an existing advisory.
func (w *brokenGallery) publish(round int) func(*proc) error {
	id := fmt.Sprintf("X-%d", rand.IntN(8))
	w.mu.Lock()
	a := galleryAdvisory{fmt.Sprintf("p%d", rand.IntN(5)), rand.IntN(6), w.fixed[id].edition + 1}
	w.mu.Unlock()
	modified := time.Unix(1_700_000_000+int64(round*100_000+a.edition), 0).UTC().Format(time.RFC3339)
	record := fmt.Appendf(nil, `{"id":%q,"modified":%q,"affected":[{"package":{"ecosystem":"npm","name":%q},`+
		`"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.%d.0"}]}]}]}`, id, modified, a.name, a.fixed)
	return func(p *proc) error {
		if err := p.importRecord(record); err != nil {
			return err
		}
		w.mu.Lock()
		w.fixed[id] = a
		w.mu.Unlock()
		return nil
	}
}

// importRecord imports one OSV record.
func (p *proc) importRecord(record []byte) error {
	conn, err := grpc.NewClient("passthrough:///"+p.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+p.dev.Token)
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(conn).ImportAdvisories(ctx)
	if err != nil {
		return err
	}
	for _, v := range []any{string(p.dev.Organization), doc("a.json", len(record)), record} {
		if err := stream.Send(part(v)); err != nil {
			break // the received error contains the reason
		}
	}
	_ = stream.CloseSend() // the received error contains the reason
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(m.GetProblems()) > 0 {
			return fmt.Errorf("%v", m.GetProblems())
		}
	}
}

// survey waits until all images are inspected, and compares their findings with the expected findings.
func (w *brokenGallery) survey(t *testing.T, p *proc) {
	t.Helper()
	c := p.owner()
	defer c.close()
	type repos struct{ Repos []struct{ UID, Name string } }
	var uid string
	for _, r := range procMust[repos](t, c, "GET", "/registry/v2beta1/repos?page_size=200", nil).Repos {
		if r.Name == "app" {
			uid = r.UID
		}
	}
	type inspection struct {
		State, Reason string
		Coverage      struct{ Waiting int }
	}
	for tag, has := range w.contents {
		path := "/findings/v1/repos/" + uid + "/%s/" + tag
		var got inspection
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got = procMust[inspection](t, c, "GET", fmt.Sprintf(path, "inspections"), nil)
			if got.State != "STATE_WAITING" && got.Coverage.Waiting == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not inspected: %+v", tag, got)
			}
		}
		want := "STATE_INDEXED"
		if has == nil {
			want = "STATE_NOT_UNDERSTOOD"
		}
		// The image was being inspected during several kills, so the server has given up on it.
		if strings.Contains(got.Reason, "started several times") && w.kills > 5 {
			continue
		}
		if got.State != want {
			t.Errorf("state of %s: %s (%s), want %s", tag, got.State, got.Reason, want)
			continue
		}
		if has != nil {
			w.compare(t, c, tag, fmt.Sprintf(path, "findings"), has)
		}
	}
}

// compare polls the findings of an image until they are as expected, because no event announces that the last
// advisories were matched.
func (w *brokenGallery) compare(t *testing.T, c *procClient, tag, path string, has map[string]int) {
	t.Helper()
	var want []string
	for id, a := range w.fixed {
		if v, ok := has[a.name]; ok && v < a.fixed {
			want = append(want, fmt.Sprintf("%s pkg:npm/%s@1.%d.0", id, a.name, v))
		}
	}
	slices.Sort(want)
	var diff string
	for deadline := time.Now().Add(procPatience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		answer, err := c.call(t.Context(), http.MethodGet, path+"?page_size=200", nil)
		if err != nil || answer.status != http.StatusOK {
			t.Fatalf("findings of %s: %v, %s", tag, err, answer.body)
		}
		var got struct {
			Findings []struct {
				AdvisoryID string `json:"advisoryId"`
				Package    struct{ Purl string }
			}
		}
		if err := json.Unmarshal(answer.body, &got); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, f := range got.Findings {
			lines = append(lines, f.AdvisoryID+" "+f.Package.Purl)
		}
		slices.Sort(lines)
		if diff = cmp.Diff(strings.Join(want, "\n"), strings.Join(lines, "\n")); diff == "" {
			return
		}
	}
	t.Errorf("findings of %s: %s", tag, diff)
}
