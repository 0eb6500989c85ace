package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A tarpit is an HTTP server with any number of issuers below one address. No issuer answers.
type tarpit struct {
	url     string
	asked   chan struct{} // receives one value for each request
	givenUp atomic.Int32  // number of requests whose client gave up
}

func newTarpit(t *testing.T) *tarpit {
	t.Helper()
	p, over := &tarpit{asked: make(chan struct{}, 10_000)}, make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p.asked <- struct{}{}
		select {
		case <-r.Context().Done():
			p.givenUp.Add(1)
		case <-over:
		}
	}))
	t.Cleanup(func() { close(over); s.Close() })
	p.url = s.URL
	return p
}

// A flood is a set of concurrent token exchanges.
type flood struct {
	sync.WaitGroup
	cancel func()
}

// flood sends unsigned tokens, one for each issuer.
func (w *world) flood(t *testing.T, identities []string, issuers []string) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	// The flood uses its own connection, because a connection has at most a hundred streams.
	client := oidcpb.NewSecurityTokenServiceClient(w.dial(t, insecure.NewCredentials()))
	f := &flood{cancel: cancel}
	for n, issuer := range issuers {
		claims := fmt.Sprintf(`{"iss":%q,"sub":"job","aud":%q,"exp":%d}`, issuer, w.AuthURL, time.Now().Add(time.Hour).Unix())
		bearer := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+jws(rsaHeader, claims, nothing))
		f.Go(func() {
			_, err := client.Exchange(bearer, &oidcpb.ExchangeRequest{
				Aud: []string{w.BaseURL}, Identity: identities[n%len(identities)],
			})
			if err == nil {
				t.Error("an unsigned token was exchanged")
			}
		})
	}
	return f
}

// wait waits until every exchange has an answer.
func (f *flood) wait() { f.Wait(); f.cancel() }

// stop cancels the exchanges that have no answer yet.
func (f *flood) stop() { f.cancel(); f.Wait() }

func issuersBelow(url string, n int) (issuers []string) {
	for i := range n {
		issuers = append(issuers, fmt.Sprintf("%s/%d", url, i))
	}
	return issuers
}

// TestAttackHangingIssuers floods the server with tokens for an organization whose identities trust hundreds of
// issuers that never answer, by a loose pattern or by name. During the flood, workloads of another organization must
// get their tokens, whether or not the keys of their issuer are cached.
func TestAttackHangingIssuers(t *testing.T) {
	const many = 200
	for name, relate := range map[string]func(url string) []resource.Relationship{
		"by a pattern": func(url string) []resource.Relationship {
			return []resource.Relationship{
				{ClaimMatch: &resource.ClaimMatch{IssuerPattern: strings.ReplaceAll(url, ".", `\.`) + `/[0-9]+`, Subject: "job"}},
			}
		},
		"by name": func(url string) (relations []resource.Relationship) {
			for _, issuer := range issuersBelow(url, many) {
				relations = append(relations, resource.Relationship{
					ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: "job"},
				})
			}
			return relations
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.StoryURL(t, func(t *testing.T, url string) {
				pit := newTarpit(t)
				var other otherOrganization
				w := serve(t, url, server.Config{}, func(s *storetest.Store) {
					other = seedOrganization(t, s, "other", relate(pit.url)...)
				})
				known := newFakeIssuer(t, w)
				warm := w.workload(t, known.url, nil)
				w.exchange(t, known.token(nil), warm)
				defer w.flood(t, other.identities, issuersBelow(pit.url, many)).stop()
				<-pit.asked
				before, begin := pit.givenUp.Load(), time.Now()
				for range 30 { // the flood is still running
					fresh := newFakeIssuer(t, w)
					w.exchange(t, fresh.token(nil), w.workload(t, fresh.url, nil))
					w.exchange(t, known.token(nil), warm)
				}
				t.Logf("60 exchanges in %v", time.Since(begin))
				if n := pit.givenUp.Load() - before; n > 0 {
					t.Errorf("%d requests to issuers of another organization timed out before the exchanges were done", n)
				}
			})
		})
	}
}

// TestAttackEvictedKeys lets a caller name more issuers than the cache of keys can hold. None of these issuers
// returns keys. The cached keys of another organization's issuer must stay in the cache.
func TestAttackEvictedKeys(t *testing.T) {
	const many = 1500
	storetest.StoryURL(t, func(t *testing.T, url string) {
		refuses := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(refuses.Close)
		var other otherOrganization
		w := serve(t, url, server.Config{}, func(s *storetest.Store) {
			other = seedOrganization(t, s, "other",
				resource.Relationship{ClaimMatch: &resource.ClaimMatch{
					IssuerPattern: strings.ReplaceAll(refuses.URL, ".", `\.`) + `/[0-9]+`, Subject: "job",
				}})
		})
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, nil)
		w.exchange(t, f.token(nil), identity)
		asked := f.asked.Load()
		for batch := range slices.Chunk(issuersBelow(refuses.URL, many), 100) {
			w.flood(t, other.identities, batch).wait()
		}
		w.exchange(t, f.token(nil), identity)
		if n := f.asked.Load(); n != asked {
			t.Errorf("the server fetched the issuer's keys again: %d requests before, %d after", asked, n)
		}
	})
}
