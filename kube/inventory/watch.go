package inventory

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	pageOfPods   = 500             // pods in one page of a list, so that the whole list is never in memory
	retryListing = 2 * time.Second // time between two attempts to list
)

// A watcher keeps a state equal to the pods of a cluster.
type watcher struct {
	pods  *rest.RESTClient
	state *state
	log   *slog.Logger
}

// newWatcher returns a watcher for the cluster of a configuration.
func newWatcher(cfg *rest.Config, s *state, log *slog.Logger) (*watcher, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+",application/json"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.UserAgent = "holdfast-kube"
	client, err := rest.RESTClientFor(cfg)
	return &watcher{client, s, log}, err
}

// run lists and watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		version, err := w.list(ctx)
		if err == nil {
			err = w.watch(ctx, version)
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("the pods are listed again", "error", err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(retryListing):
			}
		}
	}
}

// list reads all pods, and returns the version of the list.
func (w *watcher) list(ctx context.Context) (version string, _ error) {
	listed := map[types.UID]bool{}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		var page corev1.PodList
		err := w.pods.Get().Resource("pods").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&page)
		version = page.ResourceVersion
		return &page, err
	})
	pages.PageSize = pageOfPods
	pages.PageBufferSize = 1
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return errors.New("the list has something that is not a pod")
		}
		listed[p.UID] = true
		w.state.set(p)
		return nil
	})
	if err == nil {
		w.state.keep(listed)
	}
	return version, err
}

// watch follows the pods from a version on. It returns nil if the API server has forgotten the version.
func (w *watcher) watch(ctx context.Context, version string) error {
	follow := &cache.ListWatch{WatchFuncWithContext: func(
		ctx context.Context, o metav1.ListOptions,
	) (watch.Interface, error) {
		o.Watch, o.AllowWatchBookmarks = true, true
		return w.pods.Get().Resource("pods").VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	}}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, version, follow)
	if err != nil {
		return err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		switch {
		case e.Type == watch.Error:
			return nil // the version is too old
		case !ok:
		case e.Type == watch.Deleted:
			w.state.remove(p.UID)
		case e.Type == watch.Added, e.Type == watch.Modified:
			w.state.set(p)
		}
	}
	return nil
}
