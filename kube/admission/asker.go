package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

const (
	maxImages  = 100             // maximum number of images in one question
	maxCalls   = 4               // maximum number of questions at the same time
	maxWaiting = 64              // maximum number of objects of a namespace that wait for an answer
	maxKept    = 10_000          // maximum number of answers that are kept for an outage
	askTimeout = 5 * time.Second // time limit for one question
)

// ErrBusy is returned if too many objects of a namespace wait for an answer.
var ErrBusy = errors.New("too many objects of this namespace are being checked; try again")

// An Asker asks Holdfast about images. Questions that arrive while others are being answered become one question, in
// which each image appears once. A question never gets an answer that was begun before it, so a changed rule takes
// effect immediately.
type Asker struct {
	client    findingspb.AdmissionServiceClient
	platforms []string
	keep      time.Duration // how long an answer is used while Holdfast does not answer
	now       func() time.Time
	calls     chan struct{} // a slot for each question

	mu      sync.Mutex
	open    *question // the question that is not sent yet; nil if there is none
	waiting map[string]int
	kept    map[string]keptAnswer
}

// A question is a call of CheckImages.
type question struct {
	images  []string
	asked   map[string]bool
	done    chan struct{}
	answers map[string]*findingspb.ImageCheck // by image
	err     error
}

// A keptAnswer is the last answer about an image.
type keptAnswer struct {
	check *findingspb.ImageCheck
	time  time.Time
}

// NewAsker returns an Asker for nodes with these platforms.
func NewAsker(conn grpc.ClientConnInterface, platforms []string, keep time.Duration) *Asker {
	return &Asker{
		client: findingspb.NewAdmissionServiceClient(conn), platforms: platforms, keep: keep, now: time.Now,
		calls: make(chan struct{}, maxCalls), waiting: map[string]int{}, kept: map[string]keptAnswer{},
	}
}

// Ask returns the decisions about images, for an object in a namespace. If Holdfast does not answer, Ask returns the
// last answers, and outage says why. If one of the images has no last answer, Ask returns the error.
func (a *Asker) Ask(
	ctx context.Context, namespace string, images []string,
) (found map[string]*findingspb.ImageCheck, outage, _ error) {
	if err := a.enter(namespace); err != nil {
		return nil, nil, err
	}
	defer a.leave(namespace)
	found = map[string]*findingspb.ImageCheck{}
	for len(images) > 0 {
		n := min(len(images), maxImages)
		q := a.join(images[:n])
		select {
		case <-q.done:
		case <-ctx.Done():
			return a.last(images, found, ctx.Err())
		}
		if q.err != nil {
			return a.last(images, found, q.err)
		}
		for _, image := range images[:n] {
			found[image] = q.answers[image]
		}
		images = images[n:]
	}
	return found, nil, nil
}

func (a *Asker) enter(namespace string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[namespace] >= maxWaiting {
		return ErrBusy
	}
	a.waiting[namespace]++
	return nil
}

func (a *Asker) leave(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[namespace]--; a.waiting[namespace] == 0 {
		delete(a.waiting, namespace)
	}
}

// join adds images to the question that is not sent yet, or to a new one.
func (a *Asker) join(images []string) *question {
	a.mu.Lock()
	defer a.mu.Unlock()
	added := 0
	if a.open != nil {
		for _, image := range images {
			if !a.open.asked[image] {
				added++
			}
		}
	}
	if a.open == nil || len(a.open.images)+added > maxImages {
		a.open = &question{asked: map[string]bool{}, done: make(chan struct{})}
		go a.send(a.open)
	}
	for _, image := range images {
		if !a.open.asked[image] {
			a.open.asked[image] = true
			a.open.images = append(a.open.images, image)
		}
	}
	return a.open
}

// send waits for a slot, closes the question and asks it.
func (a *Asker) send(q *question) {
	a.calls <- struct{}{}
	defer func() { <-a.calls }()
	a.mu.Lock()
	if a.open == q {
		a.open = nil
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var answer *findingspb.CheckImagesResponse
	// It waits for a connection, because the last answers must not be used when Holdfast has just come back.
	answer, q.err = a.client.CheckImages(ctx, &findingspb.CheckImagesRequest{Images: q.images, Platforms: a.platforms},
		grpc.WaitForReady(true))
	if q.err == nil && len(answer.GetChecks()) != len(q.images) {
		q.err = status.Error(codes.Internal, "the server did not answer about each image")
	}
	if q.err == nil {
		q.answers = map[string]*findingspb.ImageCheck{}
		for i, image := range q.images {
			q.answers[image] = answer.GetChecks()[i]
		}
		a.remember(q)
	}
	close(q.done)
}

// remember keeps the answers of a question for an outage.
func (a *Asker) remember(q *question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	received := a.now()
	if len(a.kept)+len(q.images) > maxKept {
		for image, k := range a.kept {
			if received.Sub(k.time) > a.keep || len(a.kept)+len(q.images) > maxKept {
				delete(a.kept, image)
			}
		}
	}
	for image, check := range q.answers {
		a.kept[image] = keptAnswer{check, received}
	}
}

// last adds to found the last answers about images, if failed means that Holdfast did not answer. Otherwise, or if one
// is missing or too old, it returns failed.
func (a *Asker) last(
	images []string, found map[string]*findingspb.ImageCheck, failed error,
) (_ map[string]*findingspb.ImageCheck, outage, _ error) {
	if !isOutage(failed) {
		return nil, nil, failed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, image := range images {
		k, ok := a.kept[image]
		if !ok || a.now().Sub(k.time) > a.keep {
			return nil, nil, failed
		}
		found[image] = k.check
	}
	return found, failed, nil
}

// isOutage reports whether an error means that Holdfast gave no answer. A refusal is an answer, for example because the
// identity of the cluster was deleted, or because it asks too often: a flood must not bring back old decisions.
func isOutage(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Aborted:
		return true
	}
	return false
}
