package admission

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

const (
	allowed = findingspb.ImageDecision_IMAGE_DECISION_ALLOWED
	refused = findingspb.ImageDecision_IMAGE_DECISION_REFUSED
)

// A slowServer answers questions when the test lets it. The tests of the whole program ask a real Holdfast.
type slowServer struct {
	findingspb.UnimplementedAdmissionServiceServer
	begun chan []string // gets the images of each question that begins
	end   chan struct{} // lets one question end

	mu       sync.Mutex
	decision findingspb.ImageDecision
	err      error
}

func (s *slowServer) set(d findingspb.ImageDecision, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decision, s.err = d, err
}

func (s *slowServer) CheckImages(
	_ context.Context, r *findingspb.CheckImagesRequest,
) (*findingspb.CheckImagesResponse, error) {
	s.mu.Lock()
	decision, err := s.decision, s.err
	s.mu.Unlock()
	s.begun <- r.GetImages()
	<-s.end
	answer := &findingspb.CheckImagesResponse{}
	for _, image := range r.GetImages() {
		answer.Checks = append(answer.Checks, &findingspb.ImageCheck{Image: image, Decision: decision})
	}
	return answer, err
}

func newSlowServer(t *testing.T, keep time.Duration) (*slowServer, *Asker) {
	t.Helper()
	s := &slowServer{begun: make(chan []string, 1000), end: make(chan struct{}, 1000), decision: allowed}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	findingspb.RegisterAdmissionServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, NewAsker(conn, nil, keep)
}

// An answer is the result of Ask.
type answer struct {
	decision findingspb.ImageDecision
	kept     bool
	err      error
}

func ask(t *testing.T, a *Asker, image string) chan answer {
	got := make(chan answer, 1)
	go func() {
		found, outage, err := a.Ask(t.Context(), "shop", []string{image})
		got <- answer{found[image].GetDecision(), outage != nil, err}
	}()
	return got
}

// TestAskCombines: objects with the same image that arrive while all slots are taken become one question. It is asked
// after they arrived, so they get the decision by the rules of then.
func TestAskCombines(t *testing.T) {
	s, a := newSlowServer(t, 0)
	var before []chan answer
	for range maxCalls {
		before = append(before, ask(t, a, "app"))
		<-s.begun // so that the next one cannot join
	}
	s.set(refused, nil)
	var after []chan answer
	for range 20 {
		after = append(after, ask(t, a, "app"))
	}
	for a.waits("shop") < maxCalls+20 {
		time.Sleep(time.Millisecond)
	}
	for range maxCalls + 1 {
		s.end <- struct{}{}
	}
	for _, got := range before {
		if got := <-got; got != (answer{decision: allowed}) {
			t.Errorf("asked before the change: %v", got)
		}
	}
	for _, got := range after {
		if got := <-got; got != (answer{decision: refused}) {
			t.Errorf("asked after the change: %v", got)
		}
	}
	if images := <-s.begun; len(images) != 1 || len(s.begun) != 0 {
		t.Errorf("the last question is about %v, and %d follow", images, len(s.begun))
	}
}

// waits returns the number of objects of a namespace that wait.
func (a *Asker) waits(namespace string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiting[namespace]
}

// TestAskBusy: a namespace with too many waiting objects gets ErrBusy; another one does not.
func TestAskBusy(t *testing.T) {
	s, a := newSlowServer(t, 0)
	var all []chan answer
	for range maxWaiting {
		all = append(all, ask(t, a, "app"))
	}
	for a.waits("shop") < maxWaiting {
		time.Sleep(time.Millisecond)
	}
	if _, _, err := a.Ask(t.Context(), "shop", []string{"app"}); !errors.Is(err, ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	close(s.end)
	if _, _, err := a.Ask(t.Context(), "bank", []string{"app"}); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	for _, got := range all {
		if got := <-got; got.err != nil {
			t.Error(got.err)
		}
	}
	if a.waits("shop") != 0 {
		t.Errorf("%d objects wait at the end", a.waits("shop"))
	}
}

// TestAskKeeps: while Holdfast does not answer, the last decisions are used for a limited time. A refusal of the server
// is an answer.
func TestAskKeeps(t *testing.T) {
	s, a := newSlowServer(t, time.Minute)
	close(s.end)
	begin := time.Now()
	a.now = func() time.Time { return begin }
	if got := <-ask(t, a, "app"); got != (answer{decision: allowed}) {
		t.Fatal(got)
	}
	s.set(allowed, status.Error(codes.Unavailable, "away"))
	if got := <-ask(t, a, "app"); got != (answer{decision: allowed, kept: true}) {
		t.Errorf("during an outage: %v", got)
	}
	if got := <-ask(t, a, "other"); status.Code(got.err) != codes.Unavailable {
		t.Errorf("an image without a decision: %v", got)
	}
	for _, refusal := range []codes.Code{codes.Unauthenticated, codes.ResourceExhausted} {
		s.set(allowed, status.Error(refusal, "no"))
		if got := <-ask(t, a, "app"); status.Code(got.err) != refusal {
			t.Errorf("after a refusal: %v", got)
		}
	}
	s.set(allowed, status.Error(codes.Unavailable, "away"))
	a.now = func() time.Time { return begin.Add(time.Minute + time.Second) }
	if got := <-ask(t, a, "app"); status.Code(got.err) != codes.Unavailable {
		t.Errorf("a decision that is too old: %v", got)
	}
}

// TestAskMany asks about more images than fit into one question.
func TestAskMany(t *testing.T) {
	s, a := newSlowServer(t, 0)
	close(s.end)
	var images []string
	for i := range 2*maxImages + 1 {
		images = append(images, string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	found, _, err := a.Ask(t.Context(), "shop", images)
	if err != nil || len(found) != len(images) || len(s.begun) != 3 {
		t.Errorf("%d answers in %d questions, %v", len(found), len(s.begun), err)
	}
}
