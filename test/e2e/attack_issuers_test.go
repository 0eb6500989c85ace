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

// A tarpit is as many issuers as one likes, below one address, none of which
// answers.
type tarpit struct {
	url     string
	asked   chan struct{} // one for each question
	givenUp atomic.Int32  // questions whose asker did not wait any longer
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

// A flood is many exchanges at once.
type flood struct {
	sync.WaitGroup
	cancel func()
}

// flood presents tokens that nobody has signed, one of each issuer.
func (w *world) flood(t *testing.T, identities []string, issuers []string) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	// its own: a connection has a hundred streams
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
				t.Error("a token that nobody has signed was exchanged")
			}
		})
	}
	return f
}

// wait waits until every exchange has been answered.
func (f *flood) wait() { f.Wait(); f.cancel() }

// stop ends what has not been answered.
func (f *flood) stop() { f.cancel(); f.Wait() }

func issuersBelow(url string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s/%d", url, i))
	}
	return all
}

// TestAttackHangingIssuers has an organization whose identities lead to hundreds
// of issuers that never answer, by a loose pattern and by name. The workload of
// another gets its token meanwhile, whether the keys of its issuer are known or
// not.
func TestAttackHangingIssuers(t *testing.T) {
	const many = 200
	for name, relate := range map[string]func(url string) []resource.Relationship{
		"by a pattern": func(url string) []resource.Relationship {
			return []resource.Relationship{
				{ClaimMatch: &resource.ClaimMatch{IssuerPattern: strings.ReplaceAll(url, ".", `\.`) + `/[0-9]+`, Subject: "job"}},
			}
		},
		"by name": func(url string) (all []resource.Relationship) {
			for _, issuer := range issuersBelow(url, many) {
				all = append(all, resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: "job"}})
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.EachURL(t, func(t *testing.T, url string) {
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
				for range 30 { // while the flood comes in
					fresh := newFakeIssuer(t, w)
					w.exchange(t, fresh.token(nil), w.workload(t, fresh.url, nil))
					w.exchange(t, known.token(nil), warm)
				}
				t.Logf("60 exchanges in %v", time.Since(begin))
				if n := pit.givenUp.Load() - before; n > 0 {
					t.Errorf("%d issuers of another organization were given up before the token was there", n)
				}
			})
		})
	}
}

// TestAttackEvictedKeys has a stranger name more issuers, none of which answers
// with keys, than keys are remembered of. Those of another organization's issuer
// are remembered all the same.
func TestAttackEvictedKeys(t *testing.T) {
	const many = 1500
	storetest.EachURL(t, func(t *testing.T, url string) {
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
			t.Errorf("the issuer was asked for its keys again: %d questions, then %d", asked, n)
		}
	})
}
