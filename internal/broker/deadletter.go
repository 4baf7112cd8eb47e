package broker

import "holdfast/internal/queuehost"

// DeadLetters implements queuehost.Owner. No queue has dead letters before its declaration may ask for them.
func (b *Broker) DeadLetters(_ *queuehost.Handle, ds []queuehost.DeadLetter) {
	for i := range ds {
		if ds[i].Load != nil {
			ds[i].Load.Drop()
		}
	}
}
