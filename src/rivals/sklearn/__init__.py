"""An estimator of scikit-learn; the package scikit-learn is needed for this room alone."""

from rivals.sklearn.ticket_classifier import TicketClassifier

__all__ = ["TicketClassifier"]
